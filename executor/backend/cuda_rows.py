"""What the kernels of a segment work on: views of scratch, and an MLP as far as it lies here."""

from dataclasses import dataclass
from functools import cache

import torch

from plancc.executor.backend.cuda_scratch import Scratch
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span, tile_bounds

Tensor = torch.Tensor
_KEPT_ROWS = 64  # of decode; prompts end with any number of rows
_KEPT = 4096
_bounds = cache(tile_bounds)


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


class LayerRows:
    """Rows of each layer, made once for each number of them: making views takes as long as
    launching what works on them. `share` is of the MLPs."""

    def __init__(self, model: ModelShape, scratch: Scratch, share: Span | None) -> None:
        self._model, self._scratch, self._share = model, scratch, share
        self._made: dict[tuple[int, int], Rows] = {}

    def at(self, index: int, num_rows: int) -> Rows:
        """For a layer, or the last one where there is none of that number."""
        index = min(index, len(self._model.layers) - 1)
        found = self._made.get((index, num_rows))
        if found is None:
            found = self._make(index, num_rows)
            if num_rows <= _KEPT_ROWS or len(self._made) < _KEPT:
                self._made[index, num_rows] = found
        return found

    def rotary(self, index: int) -> int:
        """Numbers of a head that are rotated."""
        name, mixer = self._rope_name(index), self._model.layers[index].mixer
        if name is None:
            return 0
        assert self._model.geometry is not None
        return self._model.geometry.rope[name].rotary_dim or mixer.head_dim or 0

    def _rope_name(self, index: int) -> str | None:
        names = self._scratch.rope_names
        return self._model.layers[index].mixer.rope or (names[0] if names else None)

    def _make(self, index: int, num_rows: int) -> Rows:
        layer, s = self._model.layers[index], self._scratch
        queries = (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)
        widths = {"qkv": queries + (layer.mixer.kv_width() or 0), "attended": queries,
                  "activated": columns_of(layer, self._share)}  # fmt: skip
        cut = {name: s[name][: num_rows * n].view(num_rows, n) for name, n in widths.items()}
        name = self._rope_name(index)
        rope = s.rope_names.index(name) if name is not None else 0
        return Rows(hidden=s["hidden"][:num_rows], gained=s["gained"][:num_rows],
                    squares=s["squares"][:num_rows], angles=s["angles"][rope], **cut)  # fmt: skip


def tiles_of(layer: Layer) -> tuple[tuple[int, ...], int]:
    """Borders of all tiles of the layer's MLP; its quantisation group."""
    mlp = layer.mlp
    assert isinstance(mlp, DenseMlp)
    assert mlp.intermediate_size is not None
    return _bounds(mlp.intermediate_size, mlp.group, mlp.num_tiles), mlp.group


def columns_of(layer: Layer, share: Span | None) -> int:
    """Of the MLP: those of a share's tiles; 0 for a layer without a dense MLP."""
    mlp = layer.mlp
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        return 0
    if share is None:
        return mlp.intermediate_size
    bounds, _ = tiles_of(layer)
    return bounds[share[1]] - bounds[share[0]]
