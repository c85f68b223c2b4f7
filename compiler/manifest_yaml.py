"""A manifest as YAML for people: layers and blocks a line each, one tensor a line."""

import os
from pathlib import Path
from typing import Any

from plancc.ir.layers import roll
from plancc.ir.manifest import ModelManifest

_KEYS = ("format", "name", "source", "family", "dtype", "hidden_size", "vocab_size", "max_context",
         "geometry", "layers", "blocks", "weights")  # fmt: skip


class _OneLine(dict[str, Any]):
    """Plain data that is written in braces."""


def manifest_text(manifest: ModelManifest) -> str:
    """Canonical YAML text: fixed key order, defaults left out; the same manifest, the same text."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(
        _OneLine,
        lambda dumper, data: dumper.represent_mapping(
            "tag:yaml.org,2002:map", data.items(), flow_style=True
        ),
    )
    text: str = yaml.dump(
        _document(manifest), Dumper=Dumper, sort_keys=False, width=10**9, allow_unicode=True
    )
    return text


def relative_source(folder: Path, output: Path | None) -> str:
    """The weights' folder as seen from the manifest's (here, when it goes to stdout)."""
    here = output.parent if output else Path()
    return Path(os.path.relpath(folder.resolve(), here.resolve())).as_posix()


def _document(manifest: ModelManifest) -> dict[str, Any]:
    data = manifest.model_dump(mode="json", exclude_none=True)
    plain = {key: data[key] for key in _KEYS if data.get(key) not in (None, [], {})}
    if manifest.geometry:
        plain["geometry"] = _geometry(manifest)
    plain["layers"] = [_layer_row(row) for row in roll(_layers(manifest))]
    plain["blocks"] = [_OneLine(_without_defaults(block)) for block in manifest.blocks]
    if manifest.weights:
        plain["weights"] = {
            "format": manifest.weights.format,
            "fingerprint": manifest.weights.fingerprint,
            "files": [_OneLine(file.model_dump()) for file in manifest.weights.files],
            "tensors": [
                _OneLine(tensor.model_dump(mode="json")) for tensor in manifest.weights.tensors
            ],
        }
    return {key: value for key, value in plain.items() if value not in ([], {})}


def _geometry(manifest: ModelManifest) -> dict[str, Any]:
    assert manifest.geometry is not None
    data = _without_defaults(manifest.geometry)
    if "rope" in data:
        data["rope"] = {name: _OneLine(rope) for name, rope in data["rope"].items()}
    return data


def _layers(manifest: ModelManifest) -> list[dict[str, Any]]:
    return [_without_defaults(layer) for layer in manifest.layers]


def _layer_row(row: dict[str, Any]) -> dict[str, Any]:
    """A layer, or {repeat, pattern} of layers, with mixer and MLP a line each."""
    if "repeat" in row:
        return {"repeat": row["repeat"], "pattern": [_layer_row(each) for each in row["pattern"]]}
    return {
        key: _OneLine(value) if isinstance(value, dict) else value for key, value in row.items()
    }


def _without_defaults(part: Any) -> dict[str, Any]:
    data: dict[str, Any] = part.model_dump(mode="json", exclude_defaults=True)
    return data
