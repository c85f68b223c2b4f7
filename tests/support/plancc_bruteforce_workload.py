"""Every pipeline of a small model for a stated workload: each stage has two times, both its own."""

from itertools import pairwise
from typing import Any

from plancc_bruteforce import BruteForce, Search
from plancc_bruteforce_bytes import Group, Role
from plancc_bruteforce_sums import Sums


class WorkloadSearch(Search):
    """Times are (of a decode round's rows, of a chunk of the prompt). Stages are single devices."""

    def __init__(self, oracle: BruteForce, context: int) -> None:
        assert oracle.ask.tp in ("off", 1)
        super().__init__(oracle, context)
        work = self.ask.workload
        assert work is not None
        self.work, self.chunk = work, min(self.ask.prefill_chunk, work.prompt)
        ask = self.ask.model_copy(update={"prompt": work.prompt})
        self.prompt = Sums(oracle.model, oracle.topology, ask, context, self.chunk, is_prompt=True)

    def sums(self, num_stages: int) -> Sums:
        return self.by_stages(-(-self.work.streams // num_stages))

    def _by_stages(self, rows: int) -> Sums:
        return Sums(self.oracle.model, self.oracle.topology, self.ask, self.context, rows)

    def _options(self, group: Group, first: int, end: int, role: Role) -> tuple[Any, ...]:
        sums, what = self.sums(role.num_stages), (group, ((0, 1),), (first, end), role)
        room = sums.budget(group.devices[0]) - sum(sums.columns(*what, 0))
        times = (sums.compute(*what), self.prompt.compute(*what))
        return ((times, room, ()),) if room >= 0 else ()

    def hops(self, lineup: tuple[Group, ...], head: str) -> list[Any]:
        if len(lineup) == 1:
            return []
        both = self.sums(len(lineup)), self.prompt
        forth = [tuple(sums.hop(*pair) for sums in both) for pair in pairwise(lineup)]
        back = tuple(sums.back(lineup[-1], lineup[0], head == "first") for sums in both)
        return [*forth, back]

    def value(self, lineup: tuple[Group, ...], stages: list[Any], hops: list[Any]) -> int:
        """Of the first stages alone a bound from below, as each part is. No device has several."""
        num_stages = len(lineup)
        steps, chunks = zip(*stages, *hops, strict=True)
        together = min(self.work.streams, num_stages)
        beats = -(-self.work.prompt // self.chunk) + num_stages - 1
        return beats * max(chunks) + self.work.output * max(together * max(steps), sum(steps))
