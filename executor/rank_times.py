"""What a rank measures of its decode steps: stamps of its links, and what each step took."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from plancc.executor.stamps import Span, Stamp, length_ns, ns_of

_KEPT = 2048  # of the last ones


def _recent() -> deque[Any]:
    return deque(maxlen=_KEPT)


@dataclass
class RankTimes:
    """`runs` and `exchanges` have one entry a decode step; the stamps one a transfer.

    Nothing is read from a stamp before it is asked for: a device may still be at it.
    """

    runs: deque[tuple[Span, ...]] = field(default_factory=_recent)
    exchanges: deque[tuple[Span, ...]] = field(default_factory=_recent)
    sent: dict[int, deque[Stamp]] = field(default_factory=dict)
    received: dict[int, deque[Stamp]] = field(default_factory=dict)

    def clear(self) -> None:
        """Begin anew, as at the start of a measurement."""
        for times in (self.runs, self.exchanges, self.sent, self.received):
            times.clear()

    def add(self, runs: Sequence[Span], exchanges: Sequence[Span]) -> None:
        """Of one decode step."""
        if runs:
            self.runs.append(tuple(runs))
        if exchanges:
            self.exchanges.append(tuple(exchanges))

    def add_all(self, other: "RankTimes") -> None:
        """What `other` has, read now: a later step may be told by the same stamps."""
        self.runs.extend(((0, time_ns),) for time_ns in other.run_ns)
        self.exchanges.extend(((0, time_ns),) for time_ns in other.exchange_ns)
        for mine, theirs in ((self.sent, other.sent_ns), (self.received, other.received_ns)):
            for link, stamps in theirs.items():
                mine.setdefault(link, _recent()).extend(stamps)

    def mark_sent(self, links: Iterable[int], now: Stamp | None) -> None:
        self._mark(self.sent, links, now)

    def mark_received(self, links: Iterable[int], now: Stamp | None) -> None:
        self._mark(self.received, links, now)

    @property
    def run_ns(self) -> tuple[int, ...]:
        """Of its segments, a step."""
        return tuple(length_ns(spans) for spans in self.runs)

    @property
    def exchange_ns(self) -> tuple[int, ...]:
        """From its own partial rows to those of all, a step."""
        return tuple(length_ns(spans) for spans in self.exchanges)

    @property
    def sent_ns(self) -> dict[int, tuple[int, ...]]:
        """By link, as each send began."""
        return {link: tuple(map(ns_of, stamps)) for link, stamps in self.sent.items()}

    @property
    def received_ns(self) -> dict[int, tuple[int, ...]]:
        """By link, as each receipt ended."""
        return {link: tuple(map(ns_of, stamps)) for link, stamps in self.received.items()}

    def _mark(
        self, stamps: dict[int, deque[Stamp]], links: Iterable[int], now: Stamp | None
    ) -> None:
        if now is None:
            return
        for link in links:
            if link not in stamps:
                stamps[link] = _recent()
            stamps[link].append(now)
