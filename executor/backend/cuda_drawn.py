"""Tokens that a device has drawn: they stay there for the next step, and come to the host later."""

from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_scratch import Scratch
from plancc.ir.buffers import DRAWS
from plancc.kernels.gpu.sample import pick


@dataclass(frozen=True)
class DeviceTokens:
    """`on_device` int32 [rows], drawn on `stream`; `on_host` once `done` has come."""

    on_device: torch.Tensor
    on_host: torch.Tensor
    stream: torch.cuda.Stream | None
    done: torch.cuda.Event | None

    def ids(self) -> tuple[int, ...]:
        if self.done is not None:
            self.done.synchronize()
        return tuple(self.on_host.tolist())

    def copy_to(self, token_ids: torch.Tensor, stream: torch.cuda.Stream | None) -> None:
        """Into `token_ids` of a device, in the order of its stream, without waiting."""
        if token_ids.device == self.on_device.device:
            if stream is not self.stream and stream is not None and self.done is not None:
                stream.wait_event(self.done)
            token_ids.copy_(self.on_device, non_blocking=True)
            return
        assert stream is not None
        assert self.done is not None
        stream.wait_event(self.done)
        token_ids.copy_(self.on_host, non_blocking=True)  # pinned: no device has to see the other


class Drawer:
    """Draws from logits [rows, vocab_size], with a rank's scratch, on its stream."""

    def __init__(self, scratch: Scratch, stream: torch.cuda.Stream | None) -> None:
        self._device = scratch["drawn"]
        self._host = torch.zeros(self._device.shape, dtype=torch.int32, pin_memory=bool(stream))
        self._scratch, self._stream, self._count = scratch, stream, 0

    def draw(self, logits: torch.Tensor) -> DeviceTokens:
        """The largest logit of each row, -1 for a row that is not finite."""
        at, rows, s = self._count % DRAWS, len(logits), self._scratch
        self._count += 1
        found = DeviceTokens(self._device[at, :rows], self._host[at, :rows], self._stream,
                             self._event())  # fmt: skip
        pick(logits, s["bests"], s["places"], s["counters"], found.on_device, None)
        found.on_host.copy_(found.on_device, non_blocking=True)
        if found.done is not None:
            found.done.record(self._stream)
        return found

    def _event(self) -> torch.cuda.Event | None:
        return torch.cuda.Event() if self._stream else None  # type: ignore[no-untyped-call]
