"""Device memory of a rank: one allocation a purpose, cut at fixed offsets."""

from collections.abc import Iterable, Mapping
from math import prod

import torch

from plancc.ir.buffers import aligned

Shape = tuple[int, ...]
_LINE_BYTES = 256  # where large buffers begin: a few whole lines of the cache


def allocate(
    buffers: Mapping[str, tuple[Shape, torch.dtype]], device: torch.device
) -> dict[str, torch.Tensor]:
    """Zero tensors by name, in one allocation that lives as they do.

    Those of whole lines come first, so that they begin at lines and nothing lies between.
    """
    sizes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in buffers.items()}
    offsets, end = {}, 0
    for name in sorted(sizes, key=lambda name: sizes[name] % _LINE_BYTES != 0):
        offsets[name] = end
        end += aligned(sizes[name])
    arena = torch.zeros(end, dtype=torch.uint8, device=device)
    return {
        name: arena[offsets[name] : offsets[name] + sizes[name]].view(dtype).view(shape)
        for name, (shape, dtype) in buffers.items()
    }


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the numbers of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def held_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the allocations that the tensors lie in, each counted once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
