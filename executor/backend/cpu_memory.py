"""Host memory of a rank: one mapping a purpose, on huge pages where the system has them.

Weights are read from end to end in every step, and pages of 4 KiB would be looked up as often as
lines are fetched from memory.
"""

import mmap
from collections.abc import Iterable, Mapping
from math import prod

import torch

Shape = tuple[int, ...]
_LINE_BYTES = 64


def allocate(buffers: Mapping[str, tuple[Shape, torch.dtype]]) -> dict[str, torch.Tensor]:
    """Zero tensors by name, each from a cache line on, in one mapping that lives as they do."""
    offsets, size = {}, 0
    for name, (shape, dtype) in buffers.items():
        offsets[name] = size
        size += -(-prod(shape) * dtype.itemsize // _LINE_BYTES) * _LINE_BYTES
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return {
        name: _cut(memory, shape, dtype, offsets[name]) for name, (shape, dtype) in buffers.items()
    }


def _cut(memory: mmap.mmap, shape: Shape, dtype: torch.dtype, offset: int) -> torch.Tensor:
    count = prod(shape)
    if count == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=offset).view(shape)


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the numbers of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
