"""What the kernels of a segment work on: views of scratch, and an MLP as far as it lies here."""

from dataclasses import dataclass

import torch

from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.tiles import Span, tile_bounds

Tensor = torch.Tensor


@dataclass(frozen=True)
class Rows:
    """Views of scratch for so many rows of a layer."""

    hidden: Tensor
    gained: Tensor
    squares: Tensor
    qkv: Tensor
    attended: Tensor
    activated: Tensor
    angles: Tensor


def tiles_of(layer: Layer) -> tuple[tuple[int, ...], int]:
    """Borders of all tiles of the layer's MLP; its quantisation group."""
    mlp = layer.mlp
    assert isinstance(mlp, DenseMlp)
    assert mlp.intermediate_size is not None
    return tile_bounds(mlp.intermediate_size, mlp.group, mlp.num_tiles), mlp.group


def columns_of(layer: Layer, share: Span | None) -> int:
    """Of the MLP: those of a share's tiles; 0 for a layer without a dense MLP."""
    mlp = layer.mlp
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        return 0
    if share is None:
        return mlp.intermediate_size
    bounds, _ = tiles_of(layer)
    return bounds[share[1]] - bounds[share[0]]
