"""A model folder as a manifest: the config says what must be there, the headers what is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from plancc.compiler.frontends.architectures import read_architecture
from plancc.ir.document import read_json
from plancc.ir.dtype import SAFETENSORS_DTYPE
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.safetensors_file import StoredTensor, same_bytes
from plancc.ir.tensors import TensorSpec, block_tensors, layer_tensors
from plancc.ir.units import format_bytes
from plancc.ir.weight_folder import (
    Fingerprint,
    WeightFolder,
    index_of,
    read_weight_folder,
    sample_spans,
)

_EMBED, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_DERIVED = ".rotary_emb.inv_freq"  # old checkpoints store what config.json says


@dataclass(frozen=True)
class MadeManifest:
    """A manifest, what its reader should know (notes), and what only the curious ask (details)."""

    manifest: ModelManifest
    notes: tuple[str, ...]
    details: tuple[str, ...]

    def summary(self, output: Path) -> dict[str, object]:
        model, index = self.manifest, self.manifest.weights
        assert index is not None
        return {
            "manifest": str(output),
            "name": model.name,
            "digest": model.digest(),
            "layers": len(model.layers),
            "tensors": len(index.tensors),
            "weight_bytes": sum(tensor.bytes for tensor in index.tensors),
            "fingerprint": index.fingerprint,
            "weights_digest": index.digest(),
            "notes": list(self.notes),
        }

    def sentence(self, output: Path) -> str:
        model, index = self.manifest, self.manifest.weights
        assert index is not None
        size = format_bytes(sum(tensor.bytes for tensor in index.tensors))
        files = len({tensor.file for tensor in index.tensors})
        return (f"wrote {output}: {model.name}, {len(model.layers)} layers, {size} in "
                f"{len(index.tensors)} tensors of {files} file(s), {model.dtype}, "
                f"{index.fingerprint} fingerprint {index.digest()[:12]}")  # fmt: skip


def manifest_of_folder(
    folder: Path,
    *,
    name: str | None = None,
    fingerprint: Fingerprint = "sampled",
    tied: bool | None = None,
    source: str | None = None,
    started: Callable[[int], None] = lambda total_bytes: None,
    hashed: Callable[[int], None] = lambda num_bytes: None,
) -> MadeManifest:
    """The manifest of a Hugging Face folder; `tied` settles what config and weights dispute.

    `started` hears how many bytes the fingerprints read, `hashed` each piece's. Raises BadInput
    naming file, field or tensor, what was expected and what was found.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such model folder")
    config, where = read_json(folder / "config.json", "model config"), str(folder / "config.json")
    name = name or folder.resolve().name
    reading = read_architecture(config, where=where, name=name, tied=tied)
    weights = read_weight_folder(folder)  # nobody should download what is not read
    _check_tie(weights, reading.shape, where, is_chosen=tied is not None)
    _check_tensors(weights, reading.shape)
    started(_hashed_bytes(weights, fingerprint))
    index = index_of(weights, fingerprint, hashed=hashed)
    fields = {key: getattr(reading.shape, key) for key in ModelShape.model_fields}
    manifest = ModelManifest(**fields, source=source, weights=index)
    details = tuple(f"{file}: left out, the index does not name it" for file in weights.strays)
    return MadeManifest(manifest, reading.notes + weights.warnings, details)


def _check_tie(weights: WeightFolder, shape: ModelShape, where: str, *, is_chosen: bool) -> None:
    """The tie flag and the stored tensors tell one story, or the user has chosen."""
    head, embed = weights.tensor(_HEAD), weights.tensor(_EMBED)
    if not shape.has_tied_head and head is None:
        raise BadInput(f"{where}: field tie_word_embeddings: false or absent, but {weights.path} "
                       f"has no {_HEAD}; --tied yes takes the embedding as the head")  # fmt: skip
    if not shape.has_tied_head or head is None or embed is None or is_chosen:
        return
    if not same_bytes(weights.path, embed, head):
        raise BadInput(f"{where}: field tie_word_embeddings: true, but {weights.path} stores "
                       f"{_HEAD} and {_EMBED} with different bytes; choose --tied yes (the "
                       f"embedding is the head) or --tied no (the stored head is)")  # fmt: skip


def _check_tensors(weights: WeightFolder, shape: ModelShape) -> None:
    """Every tensor of the model is stored in its shape and dtype, and nothing else is."""
    found = {tensor.name: tensor for tensor in weights.tensors}
    specs = {spec.name: spec for spec in _specs(shape)}
    problems = [f"tensor {name}: missing, expected {shape.dtype} {list(spec.shape)}"
                for name, spec in specs.items() if name not in found]  # fmt: skip
    for name, tensor in found.items():
        problems += _problems(tensor, specs.get(name), shape)
    if problems:
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise BadInput(f"{weights.path}: {len(problems)} tensor(s) do not fit config.json:\n  "
                       + "\n  ".join(problems[:8]) + more)  # fmt: skip


def _specs(shape: ModelShape) -> tuple[TensorSpec, ...]:
    ends = (*block_tensors(shape, "embed"), *block_tensors(shape, "head"))
    return ends + tuple(
        spec for index in range(len(shape.layers)) for spec in layer_tensors(shape, index)
    )


def _problems(tensor: StoredTensor, spec: TensorSpec | None, shape: ModelShape) -> list[str]:
    if spec is None:
        is_known = tensor.name.endswith(_DERIVED) or (tensor.name == _HEAD and shape.has_tied_head)
        return [] if is_known else [f"tensor {tensor.name} in {tensor.file}: not part of a "
                                    f"{shape.family} of {len(shape.layers)} layers"]  # fmt: skip
    problems = []
    if tensor.shape != spec.shape:
        problems.append(f"tensor {tensor.name} in {tensor.file}: expected shape "
                        f"{list(spec.shape)}, found {list(tensor.shape)}")  # fmt: skip
    dtype = SAFETENSORS_DTYPE.get(tensor.dtype, tensor.dtype)
    if dtype != shape.dtype:
        problems.append(f"tensor {tensor.name} in {tensor.file}: expected dtype {shape.dtype} "
                        f"(config.json), found {dtype}")  # fmt: skip
    return problems


def _hashed_bytes(weights: WeightFolder, fingerprint: Fingerprint) -> int:
    if fingerprint == "full":
        return sum(tensor.bytes for tensor in weights.tensors)
    return sum(end - first for tensor in weights.tensors
               for first, end in sample_spans(tensor.bytes))  # fmt: skip
