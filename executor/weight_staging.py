"""Host memory that weights pass through where a file's bytes are not read to where they stay."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch


class Lane(Protocol):
    """A way from host memory to parameters of one device."""

    block_bytes: int
    num_copying: int  # blocks that it may have under way

    def new_memory(self, size_bytes: int) -> torch.Tensor:
        """uint8 on the host, as `copy` wants its source."""

    def copy(self, target: torch.Tensor, memory: torch.Tensor) -> Callable[[], None]:
        """Begin to copy; calling the answer returns when `memory` may be written again."""

    def finish(self) -> None:
        """Return when every target has its numbers."""


class HostLane:
    """To parameters on the host that have another dtype than the file, or strides."""

    block_bytes = 2**20  # stays in a core's cache on its way
    num_copying = 1

    def new_memory(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, memory: torch.Tensor) -> Callable[[], None]:
        target.copy_(memory)
        return _is_done

    def finish(self) -> None:
        return


class DeviceLane:
    """To parameters on an accelerator: pinned memory, and a stream of its own."""

    block_bytes = 2**23  # long enough for a link to reach its rate
    num_copying = 4

    def __init__(self, device: torch.device) -> None:
        torch.accelerator.synchronize(device)  # nobody is still filling the parameters with zeros
        self._stream = torch.Stream(device)

    def new_memory(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: torch.Tensor, memory: torch.Tensor) -> Callable[[], None]:
        with self._stream:
            target.copy_(memory, non_blocking=True)
            copied = self._stream.record_event()
        return copied.synchronize

    def finish(self) -> None:
        self._stream.synchronize()


def lane_to(device: torch.device) -> Lane:
    return HostLane() if device.type == "cpu" else DeviceLane(device)


def _is_done() -> None:
    return


@dataclass
class StagingBlock:
    memory: torch.Tensor
    wait: Callable[[], None] = _is_done  # until it may be written again


class StagingRing:
    """Blocks of a lane, each used again once its copy is done; `num_reading` are read at once."""

    def __init__(self, lane: Lane, num_reading: int) -> None:
        self.lane, self._num_left = lane, num_reading + lane.num_copying
        self._used = deque[StagingBlock]()

    def take(self, size_bytes: int) -> StagingBlock:
        """Memory of that size or more which is free to be written."""
        if size_bytes > self.lane.block_bytes:  # one long row of a strided parameter
            return StagingBlock(self.lane.new_memory(size_bytes))
        if self._num_left:
            self._num_left -= 1
            return StagingBlock(self.lane.new_memory(self.lane.block_bytes))
        block = self._used.popleft()
        block.wait()
        return block

    def copy(self, block: StagingBlock, target: torch.Tensor, dtype: torch.dtype) -> None:
        """Begin to copy the block's first numbers to the target, and give the block back."""
        size_bytes = target.numel() * dtype.itemsize
        numbers = block.memory[:size_bytes].view(dtype).view(target.shape)
        block.wait = self.lane.copy(target, numbers)
        if len(block.memory) == self.lane.block_bytes:
            self._used.append(block)
