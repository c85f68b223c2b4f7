"""A run from its first process to its last token: the phases, over a watched fleet."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from plancc.executor.fleet import Fleet
from plancc.executor.messages import (
    Failed,
    Gather,
    Gathered,
    Generate,
    Join,
    Loaded,
    Ready,
    Report,
)
from plancc.executor.request import Outcome, RankReport, Request, Sampled
from plancc.executor.seats import seats_of
from plancc.ir.errors import RunFailed

_TICK_S = 0.1
_REPORT_S = 10.0
M = TypeVar("M", Gathered, Ready)
OnLoad = Callable[[dict[str, int]], None]  # bytes so far by worker


@dataclass(frozen=True)
class LoadSummary:
    """wall_ns: from the start of the processes until every link was up.

    open_ns, load_ns: of the slowest worker, each; workers open and read side by side.
    """

    wall_ns: int
    open_ns: int
    load_ns: int
    bytes_read: int
    allocated: dict[str, dict[str, int]]  # by device, by ledger column

    @property
    def gb_s(self) -> float:
        return self.bytes_read / self.load_ns if self.load_ns else 0.0


class Session:
    """One run. Every call raises RunFailed when a worker is lost meanwhile."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def bring_up(self, on_load: OnLoad) -> LoadSummary:
        """Admit everyone, have them load, join them."""
        start = time.monotonic_ns()
        fleet = self.fleet
        while not fleet.all_admitted:
            fleet.poll(0.02)
        fleet.phase = "load"
        loaded = self._load(on_load)
        fleet.phase = "join"
        ready = self._join()
        fleet.phase = "idle"
        return LoadSummary(
            wall_ns=time.monotonic_ns() - start,
            open_ns=max(message.open_ns for message in loaded.values()),
            load_ns=max(message.load_ns for message in loaded.values()),
            bytes_read=sum(message.bytes_read for message in loaded.values()),
            allocated={
                device: columns
                for message in ready
                for device, columns in message.allocated.items()
            },
        )

    def generate(self, request: Request) -> Iterator[Sampled | Outcome]:
        """Tokens as they come, then the outcome. Raises RunFailed naming a stage whose rows were
        not finite."""
        fleet = self.fleet
        fleet.phase = "prefill"
        fleet.send(fleet.driver, Generate(request=request))
        while True:
            for _, message in fleet.poll(_TICK_S):
                if isinstance(message, Failed):
                    raise self._non_finite(message)
                if isinstance(message, Sampled):
                    fleet.phase = "decode"
                    yield message
                if isinstance(message, Outcome):
                    fleet.phase = "idle"
                    yield message
                    return

    def reports(self, report: Report) -> dict[int, RankReport]:
        """What every rank has to tell, by rank."""
        fleet, found = self.fleet, dict[int, RankReport]()
        fleet.send(fleet.driver, report)
        deadline = time.monotonic() + _REPORT_S
        while len(found) < len(seats_of(fleet.plan)):
            for _, message in fleet.poll(_TICK_S):
                if isinstance(message, RankReport):
                    found[message.rank] = message
            if time.monotonic() > deadline:
                absent = sorted({seat.rank for seat in seats_of(fleet.plan)} - set(found))
                raise RunFailed(f"ranks {absent} did not report within {_REPORT_S:g} s")
        return found

    def _load(self, on_load: OnLoad) -> dict[str, Loaded]:
        loaded: dict[str, Loaded] = {}
        while len(loaded) < len(self.fleet.members):
            for member, message in self.fleet.poll(_TICK_S):
                if isinstance(message, Loaded):
                    loaded[member.worker.name] = message
            on_load({
                member.worker.name: loaded[member.worker.name].bytes_read
                if member.worker.name in loaded
                else (member.beat.progress if member.beat else 0)
                for member in self.fleet.members
            })  # fmt: skip
        return loaded

    def _join(self) -> list[Ready]:
        """The first worker opens the store, everyone meets there; nobody, if there is but one."""
        fleet, first = self.fleet, self.fleet.members[0]
        join = Join()
        if len(fleet.members) > 1:
            hosts = {row.name: row.address for row in fleet.plan.runtime.hosts}
            address = hosts[first.worker.host]
            fleet.send(first, Gather(address=address))
            (gathered,) = self._await(Gathered, 1)
            join = Join(address=address, port=gathered.port)
        for member in fleet.members:
            fleet.send(member, join)
        return self._await(Ready, len(fleet.members))

    def _await(self, kind: type[M], count: int) -> list[M]:
        found: list[M] = []
        while len(found) < count:
            messages = self.fleet.poll(_TICK_S)
            found += [message for _, message in messages if isinstance(message, kind)]
        return found

    def _non_finite(self, message: Failed) -> RunFailed:
        """Name the first stage whose last rows were not finite."""
        reports = self.reports(Report())
        for seat in seats_of(self.fleet.plan):
            if not reports[seat.rank].is_finite:
                first, end = seat.layers
                return RunFailed(
                    f"{message.text}: the first rows that were not come from stage {seat.stage} "
                    f"(layers {first}..{end - 1}, rank {seat.rank}, device {seat.device}, worker "
                    f"{seat.worker}, host {seat.host})"
                )
        return RunFailed(f"{message.text}, though every stage's rows were")
