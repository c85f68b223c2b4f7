"""The records that tell the kernels of a rank: one of STEP a phase, one of LAYER a layer."""

import struct
from typing import Any

import numpy as np
import torch

from plancc.executor.backend.cpu_cache import CpuCache, LayerCache
from plancc.executor.backend.cpu_weights import CpuWeights
from plancc.executor.rope import rope_table
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tiles import Span, tile_bounds, tree_nodes
from plancc.kernels.formats import FORMAT_CODES
from plancc.kernels.stages import SHARED
from plancc.kernels.tables import LAYER, SEGMENT_FIELDS, STEP

TELL_SEGMENT = struct.Struct(f"={len(SEGMENT_FIELDS)}q")
"""Packs the values of SEGMENT_FIELDS; to be written at SEGMENT_OFFSET of a STEP."""
SEGMENT_OFFSET: int = STEP.fields[SEGMENT_FIELDS[0]][1]  # type: ignore[index]
Record = np.ndarray[Any, Any]
_STEP_FIELDS = frozenset(STEP.names or ())
Ints = np.ndarray[Any, np.dtype[np.int64]]


class Records:
    """Built once. Keeps alive every array whose address it wrote into a record."""

    def __init__(self, model: ModelShape, runtime: Runtime, layers: Span, tiles: Span) -> None:
        assert model.geometry is not None
        self._model, self._runtime, self._geometry = model, runtime, model.geometry
        self._first, self._tiles = layers[0], tiles
        self._rope_names = sorted(model.geometry.rope)
        self._kept: list[Any] = []
        self.layers = np.zeros(layers[1] - layers[0], LAYER)

    def keep(self, array: Record) -> int:
        """Address of an array that lives as long as the records."""
        self._kept.append(array)
        return int(array.ctypes.data)

    def fill_layers(self, weights: CpuWeights, cache: CpuCache) -> None:
        """Enter what never changes: weights, planes, geometry, tiles. A layer that the cache does
        not know has no mixer here."""
        for at, record in enumerate(self.layers):
            index = self._first + at
            for name in ("input_norm", "qkv", "qkv_bias", "output", "output_bias", "mlp_norm",
                         "gate_up", "gate_up_bias", "down", "down_bias"):  # fmt: skip
                record[name] = weights.address(f"{index}.{name}")
            layer, kept = self._model.layers[index], cache.layers.get(index)
            if kept is not None:
                self._fill_cache(record, kept)
                self._fill_geometry(record, layer)
            self._fill_tiles(record, layer)

    def _fill_cache(self, record: Any, kept: LayerCache) -> None:
        record["keys"], record["values"] = kept.keys.data_ptr(), kept.values.data_ptr()
        record["pages"], record["pages_per_slot"] = self.keep(kept.pages), kept.pages.shape[1]
        record["capacity"], record["window"] = kept.capacity, kept.window or 0

    def _fill_geometry(self, record: Any, layer: Layer) -> None:
        for field in ("num_heads", "num_kv_heads", "head_dim"):
            record[field] = getattr(layer.mixer, field)
        mixer = layer.mixer
        assert mixer.num_heads
        assert mixer.head_dim
        record["qkv_width"] = mixer.num_heads * mixer.head_dim + (mixer.kv_width() or 0)
        name = self._rope_of(layer)
        if name is None:
            return  # rotary_dim 0: positions enter by the mask alone
        record["rope"] = self._rope_names.index(name)
        record["rotary_dim"] = self._geometry.rope[name].rotary_dim or layer.mixer.head_dim

    def _rope_of(self, layer: Layer) -> str | None:
        """The name of the rotary settings of a layer, None where the model has none."""
        if layer.mixer.rope is not None or not self._rope_names:
            return layer.mixer.rope
        return self._rope_names[0]

    def _fill_tiles(self, record: Any, layer: Layer) -> None:
        mlp, (first, end) = layer.mlp, self._tiles
        assert isinstance(mlp, DenseMlp)
        assert mlp.intermediate_size is not None
        bounds = np.array(tile_bounds(mlp.intermediate_size, mlp.group, mlp.num_tiles), np.int64)
        bounds = bounds[first : end + 1] - bounds[first]
        record["inner"], record["num_tiles"] = bounds[-1], end - first
        record["tile_bounds"] = self.keep(bounds)
        record["tile_merges"] = self.keep(tile_merges(mlp.num_tiles, self._tiles))

    def step(self, weights: CpuWeights, scratch: dict[str, torch.Tensor]) -> Record:
        """A STEP with all that does not change from step to step."""
        step = np.zeros(1, STEP)
        for name, function in SHARED.items():
            step[name] = function.address
        for name, tensor in scratch.items():
            if name in _STEP_FIELDS:
                step[name] = tensor.data_ptr()
        step["hidden_size"] = self._model.hidden_size
        step["code"] = FORMAT_CODES[self._model.dtype]
        step["kv_code"] = FORMAT_CODES[self._runtime.kv_dtype]
        step["page_tokens"] = self._runtime.page_tokens
        step["norm_eps"] = self._geometry.norm_eps
        step["final_norm"] = weights.address("final_norm")
        step["head"] = weights.address("head") or weights.address("embedding")
        step["vocab_size"] = self._model.vocab_size or 0
        return step

    def fill_rope(self, step: Record, table: torch.Tensor | None, width: int) -> None:
        """Enter the frequencies of every rotary setting, each padded to `width` / 2."""
        if table is None:
            return
        frequencies = np.zeros((len(self._rope_names), width // 2))
        factors = np.ones(len(self._rope_names))
        for at, name in enumerate(self._rope_names):
            rope = self._geometry.rope[name]
            users = [layer for layer in self._model.layers if self._rope_of(layer) == name]
            dims = rope.rotary_dim or next((layer.mixer.head_dim for layer in users), None)
            if dims is None:
                continue
            made = rope_table(rope, rotary_dim=dims,
                              max_context=self._model.max_context,
                              context=self._runtime.context)  # fmt: skip
            frequencies[at, : len(made.inv_freq)] = made.inv_freq[: width // 2]
            factors[at] = made.attention_factor
        step["inv_freq"] = self.keep(np.concatenate([frequencies.reshape(-1), factors]))
        step["num_ropes"], step["rope_width"] = len(self._rope_names), width
        step["rope_table"] = table.data_ptr()


def tile_merges(num_tiles: int, share: Span) -> Ints:
    """For each tile of the share, how many nodes of the tree inside the share end with it."""
    merges = np.zeros(share[1] - share[0], np.int64)
    for first, end in tree_nodes(0, num_tiles):
        if end - first > 1 and share[0] <= first and end <= share[1]:
            merges[end - 1 - share[0]] += 1
    return merges
