"""When something was done: a clock's reading, or a device's that is told later. No torch."""

from collections.abc import Iterable
from typing import Any, Protocol


class DeviceStamp(Protocol):
    def ns(self) -> int:
        """On the host's monotonic clock; waits until it is known."""

    def until_ns(self, later: Any) -> int:
        """To a later stamp of the same rank: better than two readings of a clock."""


Stamp = int | DeviceStamp
Span = tuple[Stamp, Stamp]


def ns_of(stamp: Stamp) -> int:
    return stamp if isinstance(stamp, int) else stamp.ns()


def length_ns(spans: Iterable[Span]) -> int:
    """Of all spans together, each of one rank."""
    return sum(_span_ns(begin, end) for begin, end in spans)


def _span_ns(begin: Stamp, end: Stamp) -> int:
    if isinstance(begin, int):
        return ns_of(end) - begin
    return begin.until_ns(end)
