"""What a rank measures of its decode steps: clocks of its links, and what each step took."""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

_KEPT = 2048  # of the last ones


def _recent() -> deque[int]:
    return deque(maxlen=_KEPT)


@dataclass
class RankTimes:
    """`run_ns` and `exchange_ns` have one entry a decode step; the stamps one a transfer."""

    run_ns: deque[int] = field(default_factory=_recent)
    exchange_ns: deque[int] = field(default_factory=_recent)
    sent: dict[int, deque[int]] = field(default_factory=dict)
    received: dict[int, deque[int]] = field(default_factory=dict)

    def clear(self) -> None:
        """Begin anew, as at the start of a measurement."""
        for times in (self.run_ns, self.exchange_ns, self.sent, self.received):
            times.clear()

    def mark_sent(self, links: Iterable[int]) -> None:
        self._mark(self.sent, links)

    def mark_received(self, links: Iterable[int]) -> None:
        self._mark(self.received, links)

    def _mark(self, stamps: dict[int, deque[int]], links: Iterable[int]) -> None:
        now = time.monotonic_ns()
        for link in links:
            if link not in stamps:
                stamps[link] = _recent()
            stamps[link].append(now)
