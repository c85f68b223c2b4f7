"""Tokens that a device has drawn: they stay there for the next step, and come to the host later."""

from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_scratch import Scratch
from plancc.ir.buffers import DRAWS
from plancc.kernels.gpu.sample import pick


@dataclass(frozen=True)
class DeviceTokens:
    """`on_device` int32 [rows], drawn on `stream`; `on_host`, pinned, once `done` has come."""

    on_device: torch.Tensor
    on_host: torch.Tensor
    stream: torch.cuda.Stream | None
    done: torch.cuda.Event | None

    def ids(self) -> tuple[int, ...]:
        if self.done is not None:
            self.done.synchronize()
        return tuple(self.on_host.tolist())

    def seen_from(self, device: torch.device, stream: torch.cuda.Stream | None) -> torch.Tensor:
        """int32 [rows] that kernels of a device can read, in the order of its stream."""
        if stream is not self.stream and stream is not None:
            assert self.done is not None
            stream.wait_event(self.done)
        # pinned: no device has to see the other
        return self.on_device if device == self.on_device.device else self.on_host


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
        pick(logits, s["bests"], s["places"], s["counters"], found.on_device, None,
             told=found.on_host)  # fmt: skip
        if found.done is not None:
            found.done.record(self._stream)
        return found

    def _event(self) -> torch.cuda.Event | None:
        return torch.cuda.Event() if self._stream else None  # type: ignore[no-untyped-call]
