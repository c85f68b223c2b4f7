"""From a value to the one shape with groups: the design's order of preference among equals.

Most room on the tightest device, then names in stage order, fewest stages, the head last before
first, earliest cuts, mixers replicated before owned, earliest deals, earliest stages for blocks.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from plancc.compiler.placement.chain_search import ModeSearch
from plancc.compiler.placement.labels import WHOLE, Forward
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.shares import Deal, deal
from plancc.compiler.placement.unit_rules import GROUPED
from plancc.compiler.placement.units import Unit

MIXER_ORDER = {"single": 0, "replicated": 1, "owned": 2}


@dataclass(frozen=True)
class UnitStage:
    unit: Unit
    first: int
    end: int
    deal: Deal | None  # None: one device
    blocks: int  # bits of free blocks


@dataclass(frozen=True)
class UnitShape:
    stages: tuple[UnitStage, ...]
    mode: str  # where the head is: last | first


Key = tuple[tuple[object, ...], ...]
"""(names, stages, cuts, mixers, deals, homes of blocks) of the rest of a chain."""


def preferred_shape(
    searches: list[ModeSearch], value: int, devices: int, *, has_group: bool
) -> UnitShape:
    """The preferred of the shapes worth exactly `value` on so many devices; there must be one."""
    graphs = [_BestChains(search, value, devices, has_group) for search in searches]
    room = max(graph.headroom for graph in graphs)
    modes = searches[0].problem.head_modes
    found = []
    for graph in graphs:
        if graph.headroom == room:
            key, stages = graph.preferred(room)
            rank = (key[0], key[1], modes.index(graph.search.mode), *key[2:])
            found.append((rank, UnitShape(stages, graph.search.mode)))
    return min(found, key=lambda entry: entry[0])[1]


class _BestChains:
    """The steps of all chains of one value: a graph from the start label to whole chains."""

    def __init__(self, search: ModeSearch, value: int, devices: int, has_group: bool) -> None:
        self.search, self.value = search, value
        self.devices, self.has_group = devices, has_group
        self.columns, found = search.chains(value)
        self.steps = self._steps(found)
        self.headroom = self._headroom()

    def _steps(self, found: Forward) -> tuple[Table, Table, Table]:
        """(source, column, target) on chains worth the value."""
        if not found.steps:
            none = np.zeros(0, np.int64)
            return none, none, none
        cost = np.concatenate([states.cost for states in found.layers])
        used = np.concatenate([states.used for states in found.layers])
        rest = np.full(len(cost), INF)
        for steps in reversed(found.steps):
            np.minimum.at(rest, steps.source, self._after(steps.cost, steps.target, steps.source,
                                                          steps.column, rest, used))  # fmt: skip
        fields = ((s.source, s.column, s.target, s.cost) for s in found.steps)
        source, column, target, own = map(np.concatenate, zip(*fields, strict=True))
        through = cost[source] + self._after(own, target, source, column, rest, used)
        on_best = through == self.value
        return source[on_best], column[on_best], target[on_best]

    def _after(self, cost: Table, target: Table, source: Table, column: Table, rest: Table,
               used: Table) -> Table:  # fmt: skip
        """What a step and all that follows it cost."""
        rules, unit = self.search.rules, self.columns.unit[column]
        taken = used[source] | rules.bits[unit] | rules.grouped[unit]
        is_meant = (rules.num_devices(taken) == self.devices) & (
            (taken & GROUPED != 0) == self.has_group)  # fmt: skip
        end = np.where(is_meant, 0, INF)
        return np.minimum(cost + np.where(target == WHOLE, end, rest[target]), INF)

    def _headroom(self) -> int:
        """The most that the tightest device of such a chain can have left; -1 without one."""
        best: dict[int, int] = {}
        for one, col, two in sorted(zip(*(a.tolist() for a in self.steps), strict=True),
                                    reverse=True):  # fmt: skip
            room = int(self.columns.free[col])
            if two != WHOLE:
                room = min(room, best.get(two, -1))
            best[one] = max(best.get(one, -1), room)
        return best.get(0, -1)

    def preferred(self, room: int) -> tuple[Key, tuple[UnitStage, ...]]:
        """The first by the order of preference among chains that leave `room` everywhere."""
        after: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for one, column, two in zip(*(a.tolist() for a in self.steps), strict=True):
            if self.columns.free[column] >= room:
                after[one].append((column, two))
        best: dict[int, tuple[Key, tuple[UnitStage, ...]]] = {}
        stages: dict[int, UnitStage] = {}
        for one in sorted(after, reverse=True):  # a step leads to a later label
            for column, two in after[one]:
                rest = _END if two == WHOLE else best.get(two)
                if rest is None:
                    continue
                if column not in stages:
                    stages[column] = self._stage(column, room)
                entry = self._before(stages[column], rest)
                if one not in best or entry[0] < best[one][0]:
                    best[one] = entry
        return best[0]

    def _stage(self, column: int, room: int) -> UnitStage:
        columns = self.columns
        unit = self.search.step.units[int(columns.unit[column])]
        first, end = int(columns.first[column]), int(columns.end[column])
        runs = None
        if unit.mixer != "single":
            number = self.search.source.first_deal(columns.take(np.array([column])), room)
            tiles = int(self.search.source.rooms.sizes.runs[first, end])
            runs = deal(unit.size, tiles, number)
        return UnitStage(unit, first, end, runs, int(columns.blocks[column]))

    def _before(
        self, stage: UnitStage, rest: tuple[Key, tuple[UnitStage, ...]]
    ) -> tuple[Key, tuple[UnitStage, ...]]:
        """The key of a chain that begins with a stage."""
        (names, count, cuts, mixers, deals, homes), stages = rest
        here = tuple(self.search.problem.seats[seat] for seat in stage.unit.seats)
        home = [0 if stage.blocks >> k & 1 else (homes[k] + 1 if k < len(homes) else 1)  # type: ignore[operator]
                for k in range(len(self.search.problem.free_blocks))]  # fmt: skip
        key = (here + names, (count[0] + 1,), (stage.end, *cuts),  # type: ignore[operator]
               (MIXER_ORDER[stage.unit.mixer], *mixers), (stage.deal or (), *deals),
               tuple(home))  # fmt: skip
        return key, (stage, *stages)


_END: tuple[Key, tuple[UnitStage, ...]] = (((), (0,), (), (), (), ()), ())
