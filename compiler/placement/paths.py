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
from plancc.compiler.placement.problem import INF, Problem, Table

Fold = Literal["sum", "worst"]
Start = tuple[str, int]  # head mode, first seat


@dataclass(frozen=True)
class Limits:
    """Which columns and hops a chain may use: by what they leave free, and by what they cost."""

    least_free: int = 0
    most: int | None = None


NO_LIMITS = Limits()


class Chains:
    """The DP for one column set, one way to fold costs and one set of limits."""

    def __init__(
        self, columns: ColumnSet, fold: Fold = "sum", limits: Limits | None = None
    ) -> None:
        limits = limits or Limits()
        self.problem, self.fold = columns.problem, fold
        self.num_seats, self.num_layers = self.problem.num_seats, self.problem.num_layers
        self.all_blocks = (1 << len(self.problem.free_blocks)) - 1
        self.priced = {key: table.priced(least_free=limits.least_free, most=limits.most)
                       for key, table in columns.by_key.items()}  # fmt: skip
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

    def best_by_count(self, start: Start) -> list[int]:
        """[n] least cost of a chain of exactly n stages; INF where there is none. n = 0 is INF."""
        mode, first = start
        last, size = self.num_layers, 1 << (self.num_seats + len(self.problem.free_blocks))
        reach = np.full((size, self.num_seats, last + 1), INF)
        best = [int(INF)] * (self.num_seats + 1)
        for blocks in subsets(self.all_blocks):
            reach[1 << first | blocks << self.num_seats, first] = self.priced[mode, blocks][
                first, 0
            ]
        if mode == self.problem.head_modes[0]:
            best[1] = int(reach[1 << first | self.all_blocks << self.num_seats, first, last])
        for count, sets in enumerate(self._sets_by_count(first)):
            for seat in range(self.num_seats):
                self._extend(reach, best, mode, first, count, sets, seat)
        return best

    def _sets_by_count(self, first: int) -> list[list[int]]:
        """Sets with n seats, `first` among them, blocks not counted; index n."""
        groups: list[list[int]] = [[] for _ in range(self.num_seats)]
        for chosen in range(1 << self.num_seats):
            count = chosen.bit_count()
            if chosen >> first & 1 and count < self.num_seats:
                groups[count].append(chosen)
        return groups

    def _extend(
        self, reach: Table, best: list[int], mode: str, first: int, count: int,
        sets: list[int], seat: int,
    ) -> None:  # fmt: skip
        """Add `seat` as the next stage to every set of `count` seats that may take it."""
        mine = [chosen for chosen in sets if may_follow(self.problem, chosen, seat)]
        if not mine:
            return
        last, width = self.num_layers, self.num_seats
        for placed in subsets(self.all_blocks):
            index = np.array(mine) | placed << width
            arrive = self.join(reach[index], self.hop[None, :, seat, None]).min(axis=1)
            arrive[:, last] = INF
            for blocks in subsets(self.all_blocks & ~placed):
                column = self.priced[mode, blocks][seat][None, 1:last]
                ends = self.join(arrive[:, 1:last, None], column).min(axis=1)
                target = index | 1 << seat | blocks << width
                reach[target, seat] = np.minimum(reach[target, seat], ends)
                if placed | blocks == self.all_blocks:
                    total = self.join(ends[:, last], self.back[mode][seat, first])
                    best[count + 1] = min(best[count + 1], int(total.min()))

    def to_go(self, start: Start, num_stages: int) -> Table:
        """[set, seat, layer] least cost from a state to the end of a chain of exactly n stages."""
        mode, first = start
        last, width = self.num_layers, self.num_seats
        rest = np.full((1 << (width + len(self.problem.free_blocks)), width, last + 1), INF)
        full = [s for s in range(1 << width) if s >> first & 1 and s.bit_count() == num_stages]
        home = np.zeros(width, np.int64) if num_stages == 1 else self.back[mode][:, first]
        for chosen in full:
            rest[chosen | self.all_blocks << width, :, last] = home
        groups = self._sets_by_count(first)
        for count in range(num_stages - 1, 0, -1):
            for seat in range(width):
                self._prepend(rest, mode, groups[count], seat)
        return rest

    def _prepend(self, rest: Table, mode: str, sets: list[int], seat: int) -> None:
        """Improve states of `sets` by a next stage on `seat`."""
        mine = [chosen for chosen in sets if may_follow(self.problem, chosen, seat)]
        if not mine:
            return
        last, width = self.num_layers, self.num_seats
        for placed in subsets(self.all_blocks):
            index = np.array(mine) | placed << width
            for blocks in subsets(self.all_blocks & ~placed):
                column = self.priced[mode, blocks][seat][None, 1:last]
                after = rest[index | 1 << seat | blocks << width, seat]
                begin = self.join(column, after[:, None, :]).min(axis=2)
                total = self.join(begin[:, None, :], self.hop[None, :, seat, None])
                rest[index, :, 1:last] = np.minimum(rest[index, :, 1:last], total)


def may_follow(problem: Problem, chosen: int, seat: int) -> bool:
    """May `seat` be the next stage after the set `chosen`? Order, and one name of equals first."""
    if chosen >> seat & 1:
        return False
    if problem.in_order:
        return chosen < 1 << seat and (not problem.all_seats or chosen == (1 << seat) - 1)
    classes = problem.seat_classes
    earlier = [s for s in range(seat) if classes[s] == classes[seat]]
    return all(chosen >> s & 1 for s in earlier)


def _capped(table: Table, most: int | None) -> Table:
    return table if most is None else np.where(table <= most, table, INF)
