"""When a device was done with something, on the host's monotonic clock."""

import time
from dataclasses import dataclass

import torch

_TRUSTED_S = 20.0  # events are told apart in float32 milliseconds since a base


@dataclass(frozen=True)
class _Base:
    event: torch.cuda.Event
    ns: int


@dataclass(frozen=True)
class EventStamp:
    """An event, and another of the same device whose time is known."""

    event: torch.cuda.Event
    base: _Base

    def ns(self) -> int:
        """Waits until the device has come to it. Good to about a microsecond, and between devices
        to a few."""
        self.event.synchronize()
        since_ms: float = self.base.event.elapsed_time(self.event)
        return self.base.ns + round(since_ms * 1e6)


class DeviceClock:
    """Stamps of one stream."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._base: _Base | None = None

    def now(self) -> EventStamp:
        """Taken when the device comes to it. Waits for the device where the last base is old."""
        if self._base is None or time.monotonic_ns() - self._base.ns > _TRUSTED_S * 1e9:
            self._stream.synchronize()
            event = self._event()
            event.synchronize()
            self._base = _Base(event, time.monotonic_ns())
        return EventStamp(self._event(), self._base)

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event
