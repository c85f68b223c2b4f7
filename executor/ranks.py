"""All ranks of this process, run in turns on one thread."""

import threading
from collections.abc import Sequence

from plancc.executor.comm import is_watched
from plancc.executor.pulse import Pulse
from plancc.executor.rank import Rank


class LocalRanks:
    """`news` is set by the inlets of a process that serves several ranks of a run of several."""

    def __init__(self, ranks: Sequence[Rank], pulse: Pulse, news: threading.Event) -> None:
        self.ranks = tuple(ranks)
        self.driver = next((rank for rank in self.ranks if rank.seat.is_driver), None)
        self._pulse, self._news = pulse, news

    def allocated_bytes(self) -> dict[str, dict[str, int]]:
        """By device and ledger column; seats of one device add up."""
        total: dict[str, dict[str, int]] = {}
        for rank in self.ranks:
            row = total.setdefault(rank.seat.device, {})
            for column, size in rank.allocated_bytes().items():
                row[column] = row.get(column, 0) + size
        return total

    def advance(self) -> bool:
        """Let every rank do what it can; whether any did something."""
        self._news.clear()
        return any([rank.advance() for rank in self.ranks])

    def wait(self) -> None:
        """Return when something has come that a rank waits for. Call when `advance` was False."""
        waited = [rank.waits_for for rank in self.ranks if rank.waits_for is not None]
        assert waited, "no rank can move and none waits: the programs are unsound"
        with self._pulse.waiting():
            if any(is_watched(inlet) for inlet in waited):
                self._news.wait()
            else:
                waited[0].wait()
