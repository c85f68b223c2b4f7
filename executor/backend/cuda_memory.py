"""Device memory of a rank: one allocation a purpose, cut at fixed offsets."""

from collections.abc import Iterable, Mapping
from math import prod

import torch

Shape = tuple[int, ...]
_ALIGN_BYTES = 256  # widest load a kernel does, and the border that bulk copies want


def allocate(
    buffers: Mapping[str, tuple[Shape, torch.dtype]], device: torch.device
) -> dict[str, torch.Tensor]:
    """Zero tensors by name, in one allocation that lives as they do."""
    offsets, size = {}, 0
    for name, (shape, dtype) in buffers.items():
        offsets[name] = size
        size += -(-prod(shape) * dtype.itemsize // _ALIGN_BYTES) * _ALIGN_BYTES
    arena = torch.zeros(size, dtype=torch.uint8, device=device)
    return {
        name: _cut(arena, offsets[name], shape, dtype) for name, (shape, dtype) in buffers.items()
    }


def _cut(arena: torch.Tensor, offset: int, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    size_bytes = prod(shape) * dtype.itemsize
    return arena[offset : offset + size_bytes].view(dtype).view(shape)


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the numbers of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
