"""KV planes of a rank on its device, and where each slot's tokens lie in them.

As on any backend: page p is rows [p * page_tokens, (p + 1) * page_tokens) of a plane
[rows, num_kv_heads, head_dim]. The table that the one allocator fills is kept on the host, and the
device gets a slot's row of it whenever a step is first to touch a page. A windowed layer's slots
own fixed pages, in a ring.
"""

import hashlib
from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_memory import Arena, Shape, total_bytes
from plancc.executor.backend.cuda_scratch import Scratch
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import kv_pool_rows, kv_rows_per_slot

_NO_PAGE = -1
_DIGEST_ROWS = 1024


@dataclass(frozen=True)
class LayerCache:
    """`capacity` rows a slot: position p of a slot is its row p % capacity."""

    keys: torch.Tensor
    values: torch.Tensor
    pages: torch.Tensor  # int32 [slots, pages of a slot], on the device
    capacity: int
    window: int | None


@dataclass
class DeviceCache:
    page_tokens: int
    layers: dict[int, LayerCache]
    host_pages: torch.Tensor  # int32 [slots, pages of a slot], of layers that keep all
    pages: torch.Tensor  # the same on the device

    @property
    def allocated_bytes(self) -> int:
        """Of keys and values."""
        planes = (plane for layer in self.layers.values() for plane in (layer.keys, layer.values))
        return total_bytes(planes)

    def admit(self, slot: int) -> None:
        """Forget where the slot's tokens are. The device is told when pages come again."""
        self.host_pages[slot] = _NO_PAGE

    def note(self, pages: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
        """Enter (slot, logical page, page id) of each page; returns the slots touched."""
        for slot, logical, page in pages:
            self.host_pages[slot, logical] = page
        return tuple(sorted({slot for slot, _, _ in pages}))

    def has(self, slot: int, position: int) -> bool:
        """Whether a page for the position was entered."""
        return bool(self.host_pages[slot, position // self.page_tokens] != _NO_PAGE)

    def digest(self, layer: int, slot: int, num_tokens: int) -> str:
        """sha256 of K rows, then V rows, of the last positions before num_tokens that are seen."""
        cache = self.layers[layer]
        first = max(0, num_tokens - cache.window) if cache.window is not None else 0
        device = cache.keys.device
        index = torch.arange(first, num_tokens, device=device) % cache.capacity
        pages = cache.pages[slot, index // self.page_tokens].long()
        rows = pages * self.page_tokens + index % self.page_tokens
        found = hashlib.sha256()
        for plane in (cache.keys, cache.values):
            for at in range(0, len(rows), _DIGEST_ROWS):  # a plan may have filled the device
                some = rows[at : at + _DIGEST_ROWS]
                found.update(plane[some].contiguous().view(torch.uint8).cpu().numpy().data)
        return found.hexdigest()


def allocate_cache(
    model: ModelShape, layers: tuple[int, int], runtime: Runtime, scratch: Scratch, arena: Arena
) -> DeviceCache:
    """Zero planes for the layers [first, end), and no pages; page tables are in scratch."""
    tokens, slots, dtype = runtime.page_tokens, runtime.slots, getattr(torch, runtime.kv_dtype)
    host = torch.full((slots, -(-runtime.context // tokens)), _NO_PAGE, dtype=torch.int32)
    shared = scratch.page_table(runtime.context)
    shared.copy_(host)
    capacities: dict[int, int] = {}
    planes: dict[str, tuple[Shape, torch.dtype]] = {}
    for index in range(*layers):
        layer = model.layers[index]
        assert layer.mixer.num_kv_heads
        assert layer.mixer.head_dim
        capacities[index] = kv_rows_per_slot(layer, runtime.context, runtime.prefill_chunk)
        rows = kv_pool_rows(capacities[index], slots)
        shape = (rows, layer.mixer.num_kv_heads, layer.mixer.head_dim)
        planes |= {f"{index}.{name}": (shape, dtype) for name in ("keys", "values")}
    tensors = arena.cut(planes)
    return DeviceCache(
        page_tokens=tokens,
        layers={
            index: LayerCache(
                keys=tensors[f"{index}.keys"],
                values=tensors[f"{index}.values"],
                pages=shared if size == runtime.context else _ring(scratch.page_table(size)),
                capacity=size,
                window=model.layers[index].mixer.window,
            )
            for index, size in capacities.items()
        },
        host_pages=host,
        pages=shared,
    )


def _ring(table: torch.Tensor) -> torch.Tensor:
    """A table [slots, n] in which slot s owns the pages [s * n, (s + 1) * n)."""
    return table.copy_(torch.arange(table.numel(), dtype=torch.int32).view(table.shape))
