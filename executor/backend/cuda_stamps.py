"""When a device was done with something, on the host's monotonic clock.

Stamps are events. Those that a graph records are told anew whenever it is replayed.
"""

import time
from dataclasses import dataclass
from typing import ClassVar

import torch

_TRIES = 8


@dataclass
class _Base:
    """An event of a device and the host's time then; all clocks of the device share it, so what
    lies between two of its streams is told exactly."""

    event: torch.cuda.Event
    ns: int
    uncertain_ns: int


@dataclass(frozen=True)
class EventStamp:
    """`base` is that of its time; None for a stamp of a graph, which is told after each replay."""

    event: torch.cuda.Event
    device: torch.device
    base: _Base | None

    def ns(self) -> int:
        """Waits until the device has come to it. Between devices good to a few microseconds."""
        self.event.synchronize()
        base = self.base or DeviceClock.bases[self.device]
        return base.ns + _between_ns(base.event, self.event)

    def until_ns(self, later: "EventStamp") -> int:
        """To half a microsecond."""
        later.event.synchronize()
        return max(0, _between_ns(self.event, later.event))


class DeviceClock:
    """Stamps of one stream."""

    bases: ClassVar[dict[torch.device, _Base]] = {}

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def now(self) -> EventStamp:
        """Taken when the stream comes to it; `set` was called not long before."""
        with torch.cuda.stream(self._stream):
            is_captured = torch.cuda.is_current_stream_capturing()
            event = torch.cuda.Event(  # type: ignore[no-untyped-call]
                enable_timing=True, external=is_captured
            )
            event.record(self._stream)
        device = self._stream.device
        return EventStamp(event, device, None if is_captured else self.bases.get(device))

    def set(self) -> None:
        """Compare the device's clock with the host's, when the stream has nothing to do: time is
        told in float32 milliseconds since then."""
        self._stream.synchronize()
        tries = [self._compare() for _ in range(_TRIES)]
        self.bases[self._stream.device] = min(tries, key=lambda base: base.uncertain_ns)

    def _compare(self) -> _Base:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin = time.monotonic_ns()
        event.record(self._stream)
        event.synchronize()
        end = time.monotonic_ns()
        return _Base(event, (begin + end) // 2, end - begin)


def _between_ns(begin: torch.cuda.Event, end: torch.cuda.Event) -> int:
    between_ms: float = begin.elapsed_time(end)
    return round(between_ms * 1e6)
