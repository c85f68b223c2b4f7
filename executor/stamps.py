"""When something was done: a clock's reading, or a device's that is told later. No torch."""

from collections.abc import Iterable
from typing import Protocol


class DeviceStamp(Protocol):
    def ns(self) -> int:
        """On the host's monotonic clock; waits until it is known."""


Stamp = int | DeviceStamp
Span = tuple[Stamp, Stamp]


def ns_of(stamp: Stamp) -> int:
    return stamp if isinstance(stamp, int) else stamp.ns()


def length_ns(spans: Iterable[Span]) -> int:
    """Of all spans together; never below 0, though clocks of two devices differ a little."""
    return max(0, sum(ns_of(end) - ns_of(begin) for begin, end in spans))
