"""CP-SAT's word on what the labels found: the columns that the bound left, as flags.

A chosen column is a stage; what ends at a layer begins there again, no seat is used twice, every
free block has one place, and arcs between columns carry the hops. It shares with the labels only
the columns and their costs.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from plancc.compiler.placement.chain_search import ModeSearch
from plancc.compiler.placement.cpsat import DETERMINISTIC_LIMIT
from plancc.compiler.placement.unit_columns import UnitColumns

MOST_ARCS = 60_000


@dataclass(frozen=True)
class Wanted:
    """Which chains: of so many devices at most, with a group in them or any."""

    most_devices: int | None = None
    has_group: bool = False


def confirms(searches: list[ModeSearch], value: int, wanted: Wanted) -> bool:
    """Whether CP-SAT finds `value` to be the least of the wanted chains; False: it cannot say.

    Another optimum is a bug of ours: an assertion.
    """
    found = []
    for search in searches:
        columns, _ = search.chains(value, wanted.most_devices)
        model = _UnitModel(search, columns, wanted)
        if model.num_arcs > MOST_ARCS:
            return False
        answer = model.least()
        if answer is None:
            return False
        found += answer
    assert min(found, default=None) == value, f"CP-SAT {found}, labels {value}"
    return True


class _UnitModel:
    """Variables and rows for one place of the head."""

    def __init__(self, search: ModeSearch, columns: UnitColumns, wanted: Wanted) -> None:
        self.search, self.columns, self.wanted = search, columns, wanted
        self.units = [search.step.units[number] for number in columns.unit.tolist()]
        self.first, self.end = columns.first.tolist(), columns.end.tolist()
        self.last = search.problem.num_layers
        self.by_first: dict[int, list[int]] = defaultdict(list)
        for column, first in enumerate(self.first):
            self.by_first[first].append(column)
        self.pairs = [(one, two) for one, end in enumerate(self.end) if end < self.last
                      for two in self.by_first[end] if self._may_meet(one, two)]  # fmt: skip
        self.num_arcs = len(self.pairs)

    def _may_meet(self, one: int, two: int) -> bool:
        if self.search.problem.in_order and max(self.units[one].seats) > min(self.units[two].seats):
            return False
        return not self.units[one].mask & self.units[two].mask

    def least(self) -> list[int] | None:
        """The least value, [] where there is no chain, None where the limit came first."""
        cp = cp_model.CpModel()
        used = [cp.new_bool_var("") for _ in self.units]
        cp.add_exactly_one([used[column] for column in self.by_first[0]])
        self._add_seats(cp, used)
        total = sum(int(cost) * flag for cost, flag in zip(self.columns.cost, used, strict=True))
        total += self._hops(cp, used) + self._way_back(cp, used)
        cp.minimize(total)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
        solver.parameters.max_deterministic_time = DETERMINISTIC_LIMIT
        status = solver.solve(cp)
        if status == cp_model.INFEASIBLE:
            return []
        return [round(solver.objective_value)] if status == cp_model.OPTIMAL else None

    def _add_seats(self, cp: Any, used: list[Any]) -> None:
        problem = self.search.problem
        for seat in range(problem.num_seats):
            here = [flag for unit, flag in zip(self.units, used, strict=True)
                    if unit.mask >> seat & 1]  # fmt: skip
            cp.add_at_most_one(here)
        self._add_symmetry(cp, used)
        for block in range(len(problem.free_blocks)):
            here = [flag for held, flag in zip(self.columns.blocks.tolist(), used, strict=True)
                    if held >> block & 1]  # fmt: skip
            cp.add_exactly_one(here)
        devices = sum(unit.size * flag for unit, flag in zip(self.units, used, strict=True))
        for most in (self.wanted.most_devices, problem.ask.max_devices):
            if most is not None:
                cp.add(devices <= most)
        if self.wanted.has_group:
            cp.add(sum(flag for unit, flag in zip(self.units, used, strict=True)
                       if unit.size > 1) >= 1)  # fmt: skip

    def _add_symmetry(self, cp: Any, used: list[Any]) -> None:
        """Equal seats are used in the order of their names."""
        classes = self.search.problem.seat_classes
        for seat, number in enumerate(classes):
            earlier = [other for other in range(seat) if classes[other] == number]
            if earlier:
                cp.add(self._uses(earlier[-1], used) >= self._uses(seat, used))

    def _uses(self, seat: int, used: list[Any]) -> Any:
        pairs = zip(self.units, used, strict=True)
        return sum(flag for unit, flag in pairs if unit.mask >> seat & 1)

    def _hops(self, cp: Any, used: list[Any]) -> Any:
        """One arc out of every stage but the last, one into every stage but the first."""
        out: dict[int, list[Any]] = defaultdict(list)
        into: dict[int, list[Any]] = defaultdict(list)
        total: Any = 0
        number = self.columns.unit.tolist()
        for one, two in self.pairs:
            arc = cp.new_bool_var("")
            out[one].append(arc)
            into[two].append(arc)
            total += int(self.search.rules.hop[number[one], number[two]]) * arc
        for column, flag in enumerate(used):
            if self.end[column] < self.last:
                cp.add(sum(out[column]) == flag)
            if self.first[column] > 0:
                cp.add(sum(into[column]) == flag)
        return total

    def _way_back(self, cp: Any, used: list[Any]) -> Any:
        """From the last stage's lead to the first's, where they are two stages."""
        firsts: dict[int, list[Any]] = defaultdict(list)
        lasts: dict[int, list[Any]] = defaultdict(list)
        for column, flag in enumerate(used):
            is_first, is_last = self.first[column] == 0, self.end[column] == self.last
            if is_first and not is_last:
                firsts[self.units[column].lead].append(flag)
            if is_last and not is_first:
                lasts[self.units[column].lead].append(flag)
        ways = {(one, two): cp.new_bool_var("") for one in lasts for two in firsts}
        for one, flags in lasts.items():
            cp.add(sum(way for (last, _), way in ways.items() if last == one) == sum(flags))
        for two, flags in firsts.items():
            cp.add(sum(way for (_, first), way in ways.items() if first == two) == sum(flags))
        return sum(int(self.search.rules.back[pair]) * way for pair, way in ways.items())
