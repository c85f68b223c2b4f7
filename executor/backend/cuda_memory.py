"""Device memory of a rank: one allocation, cut at fixed offsets for each purpose."""

from collections.abc import Iterable, Mapping
from math import prod

import torch

from plancc.ir.buffers import aligned

Shape = tuple[int, ...]
Buffers = Mapping[str, tuple[Shape, torch.dtype]]
_LINE_BYTES = 256  # where large buffers begin: a few whole lines of the cache


class Arena:
    """Zeros on a device, given out from front to back, that live as what was given does."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self.device, self.size_bytes = device, size_bytes
        self._memory = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
        self._end = 0

    def cut(self, buffers: Buffers) -> dict[str, torch.Tensor]:
        """Tensors by name. Those of whole lines come first, so that they begin at lines and
        nothing lies between."""
        sizes = _sizes(buffers)
        end, offsets = -(-self._end // _LINE_BYTES) * _LINE_BYTES, {}
        for name in sorted(sizes, key=lambda name: sizes[name] % _LINE_BYTES != 0):
            offsets[name] = end
            end += aligned(sizes[name])
        assert end <= self.size_bytes, f"an arena of {self.size_bytes} bytes, {end} wanted"
        self._end = end
        return {
            name: self._memory[offsets[name] : offsets[name] + sizes[name]].view(dtype).view(shape)
            for name, (shape, dtype) in buffers.items()
        }


def arena_for(sizes: Iterable[Iterable[int]], device: torch.device) -> Arena:
    """Room for buffers of so many bytes, of several purposes."""
    each = [sum(aligned(size) for size in of_one) for of_one in sizes]
    return Arena(sum(-(-size // _LINE_BYTES) * _LINE_BYTES for size in each), device)


def allocate(buffers: Buffers, device: torch.device) -> dict[str, torch.Tensor]:
    """Zero tensors by name, in an allocation of their own."""
    return arena_for([_sizes(buffers).values()], device).cut(buffers)


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the numbers of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _sizes(buffers: Buffers) -> dict[str, int]:
    return {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in buffers.items()}
