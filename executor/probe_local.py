"""What ranks of one process measure together, over the links that a run makes between them.

Hops are launched as a decode step is: recorded and replayed as one where the devices have that, so
that the host's own time is not in them. Each hop begins when the one before has ended.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch

from plancc.executor.backend.api import Backend, Link, RankModel
from plancc.executor.probe_payload import payload_problem
from plancc.executor.step import Step
from plancc.ir.errors import RunFailed
from plancc.ir.sizes import LINK_SLOTS

_STEP = Step("decode", (0,), (0,), (0,), ((0, 0, 0),), wants_logits=False)
_DTYPE = torch.bfloat16
_ANSWER_BYTES = 64  # the smallest hop that is measured
_MANY, _FEW, _LARGE = 16, 2, 16 * 2**20  # hops of a launch, below and from so many bytes
_LAUNCHES = 4  # that follow each other before the host waits
_WARM_UP = 1
_LEAST_TIMES = 3

Reach = Callable[[torch.device, torch.device], bool]


class LocalProbe:
    """Ranks by device name, all of one backend."""

    def __init__(self, backend: Backend, ranks: Mapping[str, RankModel], can_reach: Reach) -> None:
        self._backend, self._ranks, self._can_reach = backend, ranks, can_reach

    def answer(self, what: str, **fields: Any) -> Any:
        """A request of the probe, as plain data."""
        match what:
            case "mode":
                return self.mode(**fields)
            case "staged":
                return self.staged_problem(**fields)
            case "hop inside":
                return self.hop_us(**fields)
            case "at once":
                return self.at_once_us(**fields)
            case _:
                return self.exchange_us(**fields)

    def mode(self, source: str, target: str) -> tuple[str, str | None]:
        """p2p where it is told of and true; else staged, and what was wrong where it was told."""
        if not self._can_reach(self._where(source), self._where(target)):
            return "staged", None
        try:
            problem = payload_problem(lambda size: self.carry(source, target, size))
        except RunFailed as error:  # a link may find out by itself
            problem = str(error)
        return ("p2p", None) if problem is None else ("staged", problem)

    def staged_problem(self, source: str, target: str) -> str | None:
        """What is wrong with bytes that go through memory of the host; None if nothing is."""
        return payload_problem(lambda size: self.carry(source, target, size, is_staged=True))

    def carry(
        self, source: str, target: str, size: int, *, is_staged: bool = False
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """Bytes of the host to the source, over a link of the run, and back from the target."""
        link = self._link(source, target, size, is_staged=is_staged)

        def carried(payload: torch.Tensor) -> torch.Tensor:
            rows = self._rows(source, size, payload)
            arrived = _hop(link, rows)
            self._ranks[target].wait()
            found = arrived.cpu().view(torch.uint8).flatten()
            link.free()
            return found

        return carried

    def hop_us(
        self, source: str, target: str, is_staged: bool, sizes: Sequence[int], seconds: float
    ) -> list[float]:
        """By size, one way. There and back with a small answer; half of a small one's both ways
        is taken off."""
        back = self._both_ways_us(source, target, is_staged, _ANSWER_BYTES, seconds) / 2
        times = [self._both_ways_us(source, target, is_staged, size, seconds) for size in sizes]
        return [max(us - back, back) for us in times]

    def _both_ways_us(
        self, source: str, target: str, is_staged: bool, size: int, seconds: float
    ) -> float:
        there = self._link(source, target, size, is_staged=is_staged)
        back = self._link(target, source, _ANSWER_BYTES, is_staged=is_staged)
        rows, answer = self._rows(source, size), self._rows(target, _ANSWER_BYTES)
        count = _FEW if size >= _LARGE else _MANY

        def launch() -> torch.Tensor:
            for _ in range(count):
                _hop(there, rows)
                _hop(back, answer)
                there.free()
                back.free()
            return rows

        return self._median_us([source, target], [there, back], launch, seconds) / count

    def at_once_us(self, hops: Sequence[tuple[str, str, bool]], size: int, seconds: float) -> float:
        """A hop of each (source, target, is_staged), all under way together."""
        links = [self._link(source, target, size, is_staged=is_staged)
                 for source, target, is_staged in hops]  # fmt: skip
        rows = [self._rows(source, size) for source, _, _ in hops]
        names = list(dict.fromkeys(name for hop in hops for name in hop[:2]))

        return self._together_us(names, links, rows, seconds, count=_FEW)

    def exchange_us(
        self, group: Sequence[str], staged: Sequence[tuple[str, str]], sizes: Sequence[int],
        seconds: float,
    ) -> list[float]:  # fmt: skip
        """By size, from everyone's rows being there to everyone having everyone's."""
        return [self._exchange_us(group, {(a, b) for a, b in staged}, size, seconds)
                for size in sizes]  # fmt: skip

    def _exchange_us(
        self, group: Sequence[str], staged: set[tuple[str, str]], size: int, seconds: float
    ) -> float:
        pairs = list(permutations(group, 2))
        links = [self._link(*pair, size, is_staged=pair in staged) for pair in pairs]
        own = {name: self._rows(name, size) for name in group}
        rows = [own[source] for source, _ in pairs]

        return self._together_us(group, links, rows, seconds, count=_MANY)

    def _together_us(
        self, names: Sequence[str], links: Sequence[Link], rows: Sequence[torch.Tensor],
        seconds: float, *, count: int,
    ) -> float:  # fmt: skip
        """A row over every link, all under way together: what a rank waits for stands behind all
        that it sends."""

        def launch() -> torch.Tensor:
            for _ in range(count):
                for link, payload in zip(links, rows, strict=True):
                    link.expect(payload.shape[0])
                    link.send_rows(payload)
                for link in links:
                    link.take_rows()
                for link in links:
                    link.free()
            return rows[0]

        return self._median_us(names, links, launch, seconds) / count

    def _median_us(
        self, names: Sequence[str], links: Sequence[Link], launch: Callable[[], torch.Tensor],
        seconds: float,
    ) -> float:  # fmt: skip
        """Of one launch, of several that follow each other."""
        ranks = list({id(self._ranks[name]): self._ranks[name] for name in names}.values())
        recorder = self._backend.recorder(ranks, links)
        times: list[float] = []
        deadline = time.monotonic() + seconds
        while len(times) < _WARM_UP + _LEAST_TIMES or time.monotonic() < deadline:
            for rank in ranks:
                rank.begin(_STEP)
            begin = time.monotonic_ns()
            for _ in range(_LAUNCHES):
                if recorder is None:
                    launch()
                else:
                    recorder.run(_STEP, launch)
            for rank in ranks:
                rank.wait()
            times.append((time.monotonic_ns() - begin) / 1e3 / _LAUNCHES)
        return statistics.median(times[_WARM_UP:])

    def _link(self, source: str, target: str, size: int, *, is_staged: bool) -> Link:
        """One whose rows end in memory of the target's device: in place, staged ones do."""
        shape = (LINK_SLOTS, 1, size // _DTYPE.itemsize)
        ends = (self._ranks[source], self._ranks[target])
        link = self._backend.link(
            *ends, shape=shape, dtype=_DTYPE, is_staged=is_staged, in_place=is_staged
        )
        self._rows(target, _ANSWER_BYTES)  # waits for what fills the target's slots
        return link

    def _rows(self, name: str, size: int, payload: torch.Tensor | None = None) -> torch.Tensor:
        """One row on the device: those bytes, or zeros."""
        found = torch.zeros(size, dtype=torch.uint8) if payload is None else payload
        rows = found.view(_DTYPE).view(1, -1).to(self._where(name))
        rows.view(torch.uint8)[0, 0].item()  # waits for it: ranks work apart from who fills
        return rows

    def _where(self, name: str) -> torch.device:
        rank = self._ranks[name]
        return rank.parameter(rank.pieces()[0]).device


def _hop(link: Link, rows: torch.Tensor) -> torch.Tensor:
    link.expect(rows.shape[0])
    link.send_rows(rows)
    return link.take_rows()
