"""Checkpoints whose gate and up are one matrix, as some models ship them, and their manifests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from plancc_checkpoints import (
    CODES,
    TinyLlama,
    encode,
    tensor_values,
    write_checkpoint,
    write_safetensors,
)
from plancc_plans import manifest_of

from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest
from plancc.ir.weight_folder import weight_index

Layout = Literal["concatenated", "interleaved"]


def write_fused(folder: Path, spec: TinyLlama, layout: Layout) -> ModelManifest:
    """The numbers of write_checkpoint(folder, spec), rows of gate and up in the layout's order."""
    write_checkpoint(folder, spec)
    write_safetensors(
        folder / "model.safetensors",
        {name: (CODES[spec.dtype], values.shape, encode(values, spec.dtype))
         for name, values in _fused(tensor_values(spec), layout).items()},
    )  # fmt: skip
    manifest = manifest_of(folder, spec)
    layer = manifest.layers[0]
    assert isinstance(layer.mlp, DenseMlp)
    fused = layer.model_copy(update={"mlp": layer.mlp.model_copy(update={"fused": layout})})
    return manifest.model_copy(
        update={"layers": (fused,) * spec.num_layers, "weights": weight_index(folder)}
    )


def _fused(values: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray[Any, Any]]:
    found = dict(values)
    for name in values:
        if "mlp.gate_proj" not in name:
            continue
        gate, up = found.pop(name), found.pop(name.replace("gate_proj", "up_proj"))
        both = np.empty((2 * len(gate), gate.shape[1]), gate.dtype)
        places = (slice(0, len(gate)), slice(len(gate), None))
        if layout == "interleaved":
            places = (slice(0, None, 2), slice(1, None, 2))
        for place, part in zip(places, (gate, up), strict=True):
            both[place] = part
        found[name.replace("gate_proj", "gate_up_proj")] = both
    return found
