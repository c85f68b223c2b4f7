"""KV planes of a rank's layers, and the tables that say which page holds which tokens.

A plane is [rows, num_kv_heads, head_dim]; page p is rows [p * page_tokens, (p + 1) * page_tokens),
but for the pool's last page, which may be short. Layers that keep the whole context share the
table that the one allocator fills. A windowed layer keeps fewer rows than the allocator's pages
would name: its slots own fixed pages, in a ring.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plancc.executor.backend.cpu_memory import Shape, allocate, total_bytes
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import kv_pool_rows, kv_rows_per_slot

Table = np.ndarray[Any, np.dtype[np.int64]]
_NO_PAGE = -1


@dataclass(frozen=True)
class LayerCache:
    """`capacity` rows a slot: position p of a slot is its row p % capacity."""

    keys: torch.Tensor
    values: torch.Tensor
    pages: Table  # [slots, pages of a slot]
    capacity: int
    window: int | None


@dataclass
class CpuCache:
    page_tokens: int
    layers: dict[int, LayerCache]
    pages: Table  # of the layers that keep the whole context
    pool_rows: int

    @property
    def allocated_bytes(self) -> int:
        planes = (plane for layer in self.layers.values() for plane in (layer.keys, layer.values))
        return total_bytes(planes)

    def admit(self, slot: int) -> None:
        """Forget where the slot's tokens are."""
        self.pages[slot] = _NO_PAGE

    def note(self, pages: tuple[tuple[int, int, int], ...]) -> None:
        """Enter (slot, logical page, page id) of each page that a step is first to touch."""
        last = self.pages.shape[1] - 1
        for slot, logical, page in pages:
            is_short = (page + 1) * self.page_tokens > self.pool_rows
            assert not is_short or logical == last, f"page {page} is short: a slot's last only"
            self.pages[slot, logical] = page

    def has(self, slot: int, position: int) -> bool:
        """Whether a page for the position was entered."""
        return bool(self.pages[slot, position // self.page_tokens] != _NO_PAGE)

    def digest(self, layer: int, slot: int, num_tokens: int) -> str:
        """sha256 of K rows, then V rows, of the last positions before num_tokens that are seen."""
        cache = self.layers[layer]
        first = max(0, num_tokens - cache.window) if cache.window is not None else 0
        index = np.arange(first, num_tokens) % cache.capacity
        page, offset = np.divmod(index, self.page_tokens)
        rows = torch.from_numpy(cache.pages[slot, page] * self.page_tokens + offset)
        found = hashlib.sha256()
        for plane in (cache.keys, cache.values):
            found.update(plane[rows].contiguous().view(torch.uint8).numpy().data)
        return found.hexdigest()


def allocate_cache(model: ModelShape, layers: tuple[int, int], runtime: Runtime) -> CpuCache:
    """Zero planes for the layers [first, end), and no pages."""
    tokens, slots, dtype = runtime.page_tokens, runtime.slots, getattr(torch, runtime.kv_dtype)
    shared = np.full((slots, -(-runtime.context // tokens)), _NO_PAGE, np.int64)
    capacities: dict[int, int] = {}
    planes: dict[str, tuple[Shape, torch.dtype]] = {}
    for index in range(*layers):
        mixer = model.layers[index].mixer
        assert mixer.num_kv_heads
        assert mixer.head_dim
        capacities[index] = kv_rows_per_slot(
            model.layers[index], runtime.context, runtime.prefill_chunk
        )
        shape = (kv_pool_rows(capacities[index], slots), mixer.num_kv_heads, mixer.head_dim)
        planes |= {f"{index}.{name}": (shape, dtype) for name in ("keys", "values")}
    tensors = allocate(planes)
    return CpuCache(
        page_tokens=tokens,
        layers={
            index: LayerCache(
                keys=tensors[f"{index}.keys"],
                values=tensors[f"{index}.values"],
                pages=shared if capacity == runtime.context else _ring(slots, capacity, tokens),
                capacity=capacity,
                window=model.layers[index].mixer.window,
            )
            for index, capacity in capacities.items()
        },
        pages=shared,
        pool_rows=kv_pool_rows(runtime.context, slots),
    )


def _ring(slots: int, capacity: int, page_tokens: int) -> Table:
    """Slot s owns the pages [s * n, (s + 1) * n)."""
    num_pages = -(-capacity // page_tokens)
    return np.arange(slots * num_pages, dtype=np.int64).reshape(slots, num_pages)
