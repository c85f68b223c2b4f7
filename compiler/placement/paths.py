"""Exact subset DP: the best chains of columns over sets of seats.

A chain starts at layer 0 on seat f and ends at layer L; a step from seat d to e costs hop[d, e],
and the last seat sends back to f. The state is (used seats and placed blocks, last seat, layer);
everything is exact integer arithmetic. Costs are added (latency) or the worst is kept (beats).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plancc.compiler.placement.columns import ColumnSet, subsets
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.seat_sets import Rows, SeatSets, may_follow, sets_from

Fold = Literal["sum", "worst"]
Start = tuple[str, int]  # head mode, first seat


@dataclass(frozen=True)
class Limits:
    """Which columns and hops a chain may use: by what they leave free, and by what they cost."""

    least_free: int = 0
    most: int | None = None


class Chains:
    """The DP for one column set, one way to fold costs and one set of limits."""

    def __init__(
        self, columns: ColumnSet, fold: Fold = "sum", limits: Limits | None = None
    ) -> None:
        limits = limits or Limits()
        self.columns, self.problem, self.fold = columns, columns.problem, fold
        self.num_seats, self.num_layers = self.problem.num_seats, self.problem.num_layers
        self.all_blocks = (1 << len(self.problem.free_blocks)) - 1
        self.priced = {key: table.priced(least_free=limits.least_free, most=limits.most)
                       for key, table in columns.by_key.items()}  # fmt: skip
        self._sets: dict[int, SeatSets] = {}
        self.hop = _capped(columns.times.hop, limits.most)
        self.back = {mode: _capped(columns.back(mode), limits.most)
                     for mode in self.problem.head_modes}  # fmt: skip

    def starts(self) -> Iterator[Start]:
        """Head modes and first seats, the first of each class only."""
        for mode in self.problem.head_modes:
            for seat in range(self.num_seats):
                if may_follow(self.problem, 0, seat):
                    yield mode, seat

    def join(self, one: Table, two: Table) -> Table:
        """Both costs, INF where either is."""
        joined = one + two if self.fold == "sum" else np.maximum(one, two)
        return np.minimum(joined, INF)

    def sets_from(self, first: int) -> SeatSets:
        if first not in self._sets:
            self._sets[first] = sets_from(self.problem, first)
        return self._sets[first]

    def state(self, first: int, chosen: int, blocks: int) -> int:
        """Row of the tables of chains from `first`: a set of seats, and the blocks placed."""
        sets = self.sets_from(first)
        return sets.row[chosen] + blocks * len(sets.sets)

    def best_by_count(self, start: Start, most_stages: int | None = None) -> list[int]:
        """[n] least cost of a chain of exactly n stages; INF where there is none. n = 0 is INF.

        Chains of more than `most_stages` are not looked for.
        """
        mode, first = start
        last, sets = self.num_layers, self.sets_from(first)
        size = len(sets.sets) * (self.all_blocks + 1)
        reach = np.full((size, self.num_seats, last + 1), INF)
        best = [int(INF)] * (self.num_seats + 1)
        for blocks in subsets(self.all_blocks):
            reach[self.state(first, 1 << first, blocks), first] = self.priced[mode, blocks][
                first, 0
            ]
        if mode == self.problem.head_modes[0]:
            best[1] = int(reach[self.state(first, 1 << first, self.all_blocks), first, last])
        for count, moves in enumerate(sets.moves[:most_stages]):
            for seat, (rows, targets) in moves.items():
                total = self._extend(reach, start, seat, rows, targets)
                best[count + 1] = min(best[count + 1], total)
        return best

    def _extend(self, reach: Table, start: Start, seat: int, rows: Rows, targets: Rows) -> int:
        """Add `seat` as the next stage to the sets in `rows`; the least cost of a whole chain."""
        mode, first = start
        last, width, best = self.num_layers, len(self.sets_from(first).sets), int(INF)
        for placed in subsets(self.all_blocks):
            arrive = self.join(reach[rows + placed * width], self.hop[None, :, seat, None])
            arrive = arrive.min(axis=1)
            for blocks in subsets(self.all_blocks & ~placed):
                column = self.priced[mode, blocks][seat][None, 1:last]
                ends = self.join(arrive[:, 1:last, None], column).min(axis=1)
                reached = reach[:, seat]  # several sets may have one target: where order is given
                np.minimum.at(reached, targets + (placed | blocks) * width, ends)
                if placed | blocks == self.all_blocks:
                    total = self.join(ends[:, last], self.back[mode][seat, first])
                    best = min(best, int(total.min()))
        return best

    def to_go(self, start: Start, num_stages: int) -> Table:
        """[state, seat, layer] least cost from a state to the end of a chain of n stages."""
        mode, first = start
        last, sets = self.num_layers, self.sets_from(first)
        size = len(sets.sets) * (self.all_blocks + 1)
        rest = np.full((size, self.num_seats, last + 1), INF)
        home = (np.zeros(self.num_seats, np.int64) if num_stages == 1
                else self.back[mode][:, first])  # fmt: skip
        rest[sets.rows_of(num_stages) + self.all_blocks * len(sets.sets), :, last] = home
        for count in range(num_stages - 1, 0, -1):
            for seat, (rows, targets) in sets.moves[count].items():
                self._prepend(rest, start, seat, rows, targets)
        return rest

    def _prepend(self, rest: Table, start: Start, seat: int, rows: Rows, targets: Rows) -> None:
        """Improve the states of `rows` by a next stage on `seat`."""
        mode, first = start
        last, width = self.num_layers, len(self.sets_from(first).sets)
        for placed in subsets(self.all_blocks):
            index = rows + placed * width
            for blocks in subsets(self.all_blocks & ~placed):
                column = self.priced[mode, blocks][seat][None, 1:last]
                behind = rest[targets + (placed | blocks) * width, seat]
                begin = self.join(column, behind[:, None, :]).min(axis=2)
                total = self.join(begin[:, None, :], self.hop[None, :, seat, None])
                rest[index, :, 1:last] = np.minimum(rest[index, :, 1:last], total)


Values = dict[int, tuple[int, tuple[Start, ...]]]
"""Number of stages -> the least value, and the starts that reach it."""


def best_values(chains: Chains, most_stages: int | None = None) -> Values:
    """Number of stages -> (least value, the starts that reach it)."""
    found: Values = {}
    for start in chains.starts():
        for count, value in enumerate(chains.best_by_count(start, most_stages)):
            known = found.get(count, (int(INF), ()))
            if value < known[0]:
                found[count] = (value, (start,))
            elif value == known[0] < INF:
                found[count] = (value, (*known[1], start))
    return {count: entry for count, entry in found.items() if entry[0] < INF}


def _capped(table: Table, most: int | None) -> Table:
    return table if most is None else np.where(table <= most, table, INF)
