"""The proof: an independent CP-SAT model of the same problem, minimised to a bound.

For each seat a start, an end and whether it is used; a circuit for the order. What closes the gap
is the redundant conservation rows: the layers (and the bytes) of all seats sum to the model's.
Prefix sums enter as deviations from a straight line, which are small.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.times import Times

DETERMINISTIC_LIMIT = 60.0  # of CP-SAT's own clock, so that every machine stops at the same place


@dataclass(frozen=True)
class Goal:
    """minimise max(worst_factor * the worst hop or device, sum_factor * the sum of all)."""

    sum_factor: int
    worst_factor: int
    num_stages: int | None = None
    most_stages: int | None = None


@dataclass(frozen=True)
class Bound:
    is_optimal: bool
    value: int
    bound: int


def can_prove(problem: Problem) -> bool:
    """The model knows one scratch a stage, and one cost: layers' may differ, and a mix has two."""
    above = np.triu_indices(problem.num_layers + 1, 1)
    is_even = all(len(np.unique(table[above])) == 1 for table in problem.workspace.values())
    return is_even and problem.ask.objective != "workload"


class ChainModel:
    """Variables and rows; built once, solved once."""

    presolve, is_infeasible = True, False  # the latter by the last solve

    def __init__(self, columns: ColumnSet, goal: Goal) -> None:
        self.cp = cp_model.CpModel()
        self.columns, self.goal = columns, goal
        self.problem, self.times = columns.problem, columns.times
        self.seats = range(self.problem.num_seats)
        self._add_runs()
        self._add_order()
        self._add_blocks()
        self._add_memory()
        self._add_objective()

    def solve(self, limit: float = DETERMINISTIC_LIMIT) -> tuple[Bound | None, cp_model.CpSolver]:
        """Run to the deterministic limit; None where there is no solution (or none was found)."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
        solver.parameters.cp_model_presolve = self.presolve
        solver.parameters.max_deterministic_time = limit
        status = solver.solve(self.cp)
        self.is_infeasible = status == cp_model.INFEASIBLE
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, solver
        is_optimal, value = status == cp_model.OPTIMAL, round(solver.objective_value)
        bound = value if is_optimal else round(solver.best_objective_bound)
        return Bound(is_optimal, value, bound), solver

    def _flag(self) -> Any:
        return self.cp.new_bool_var("")

    def _add_runs(self) -> None:
        """A used seat holds layers [start, end); an unused one starts and ends at 0."""
        last = self.problem.num_layers
        cuts = np.flatnonzero(self.problem.cut_is_legal).tolist()
        domain = cp_model.Domain.from_values(cuts)
        self.used = [self._flag() for _ in self.seats]
        self.start = [self.cp.new_int_var_from_domain(domain, "") for _ in self.seats]
        self.end = [self.cp.new_int_var_from_domain(domain, "") for _ in self.seats]
        for seat in self.seats:
            self.cp.add(self.end[seat] - self.start[seat] >= self.used[seat])
            self.cp.add(self.end[seat] == 0).only_enforce_if(~self.used[seat])
        self.cp.add(sum(e - s for s, e in zip(self.start, self.end, strict=True)) == last)
        if self.problem.ask.stage_layers is not None:
            runs = [(0, 0), *_runs(self.problem.ask.stage_layers)]
            for seat in self.seats:
                self.cp.add_allowed_assignments([self.start[seat], self.end[seat]], runs)

    def _add_order(self) -> None:
        """A circuit through a depot; the next stage starts where this one ends."""
        last, arcs = self.problem.num_layers, []
        self.first = [self._flag() for _ in self.seats]
        self.last = [self._flag() for _ in self.seats]
        self.next: dict[tuple[int, int], Any] = {}
        for seat in self.seats:
            arcs += [(0, seat + 1, self.first[seat]), (seat + 1, 0, self.last[seat]),
                     (seat + 1, seat + 1, ~self.used[seat])]  # fmt: skip
            self.cp.add(self.start[seat] == 0).only_enforce_if(self.first[seat])
            self.cp.add(self.end[seat] == last).only_enforce_if(self.last[seat])
            for other in self.seats:
                if other != seat and not (self.problem.in_order and other < seat):
                    arc = self.next[seat, other] = self._flag()
                    arcs.append((seat + 1, other + 1, arc))
                    self.cp.add(self.start[other] == self.end[seat]).only_enforce_if(arc)
        self.cp.add_circuit(arcs)
        self._add_symmetry()
        if self.problem.all_seats:
            self.cp.add(sum(self.used) == len(self.used))
        if self.goal.num_stages is not None:
            self.cp.add(sum(self.used) == self.goal.num_stages)
        if self.goal.most_stages is not None:
            self.cp.add(sum(self.used) <= self.goal.most_stages)

    def _add_symmetry(self) -> None:
        """Equal seats are used in the order of their names."""
        classes = self.problem.seat_classes
        for two in self.seats:
            earlier = [one for one in range(two) if classes[one] == classes[two]]
            if earlier:
                self.cp.add_implication(self.used[two], self.used[earlier[-1]])
                self.cp.add(self.start[earlier[-1]] <= self.start[two]).only_enforce_if(
                    self.used[two])  # fmt: skip

    def _add_blocks(self) -> None:
        """Where free blocks lie, and (last, first, head mode) of the chain."""
        self.block: list[dict[int, Any]] = []
        for block in self.problem.free_blocks:
            seats = {seat: self._flag() for seat in block.seats}
            self.cp.add_exactly_one(list(seats.values()))
            for seat, flag in seats.items():
                self.cp.add_implication(flag, self.used[seat])
            self.block.append(seats)
        embed, head = self.problem.end_seats("embed"), self.problem.end_seats("head")
        self.ends: dict[tuple[int, int, str], Any] = {}
        for last in self.seats:
            for first in self.seats:
                for mode in self.problem.head_modes:
                    home = first if mode == "first" else last
                    single = last == first and mode != self.problem.head_modes[0]
                    backwards = self.problem.in_order and last < first
                    if first in embed and home in head and not single and not backwards:
                        self.ends[last, first, mode] = self._flag()
        self.cp.add_exactly_one(list(self.ends.values()))
        for seat in self.seats:
            lasts = [flag for key, flag in self.ends.items() if key[0] == seat]
            firsts = [flag for key, flag in self.ends.items() if key[1] == seat]
            self.cp.add(sum(lasts) == self.last[seat])
            self.cp.add(sum(firsts) == self.first[seat])

    def _head_at(self, seat: int) -> Any:
        return sum(flag for (last, first, mode), flag in self.ends.items()
                   if seat == (first if mode == "first" else last))  # fmt: skip

    def _add_memory(self) -> None:
        """bytes of layers + ends + blocks + buffers <= budget; all layers' bytes are conserved."""
        problem, sizes = self.problem, self.problem.layer_bytes
        held = [self._span(sizes, seat) for seat in self.seats]
        self.cp.add(sum(held) == int(sizes[-1]))
        hop, has_head = problem.hop_buffer, problem.model.block("head") is not None
        beside, alone = problem.block_bytes("head", beside_embed=True), problem.block_bytes("head")
        self.filled: dict[str, Any] = {}
        for seat in self.seats:
            scratch, more = problem.even_scratch(seat)
            total = held[seat] + self.first[seat] * problem.end_bytes("first")
            total += self.last[seat] * problem.end_bytes("last") + self.used[seat] * scratch
            total += hop * (2 * self.used[seat] - self.first[seat] - self.last[seat])
            for (last, first, mode), flag in self.ends.items():
                if has_head and seat == (first if mode == "first" else last):
                    total += flag * (more + (beside if first == seat else alone))
                if mode == "first" and last != first:
                    total += flag * hop * (int(seat == first) + int(seat == last))
            for flags, block in zip(self.block, problem.free_blocks, strict=True):
                total += flags[seat] * block.size_bytes if seat in flags else 0
            name = problem.seats[seat]
            self.filled[name] = self.filled.get(name, 0) + total
        for name, total in self.filled.items():
            seat = problem.seats.index(name)
            self.cp.add(total <= int(problem.budgets[seat]))

    def _span(self, prefix: Table, seat: int) -> Any:
        """prefix[end] - prefix[start], exactly: a slope, and deviations by element."""
        last = len(prefix) - 1
        slope = round(int(prefix[-1]) / last)
        bend = [int(value) - slope * k for k, value in enumerate(prefix)]
        span = slope * (self.end[seat] - self.start[seat])
        if not any(bend):
            return span
        low, high = min(bend), max(bend)
        ends = [self.cp.new_int_var(low, high, "") for _ in range(2)]
        self.cp.add_element(self.end[seat], bend, ends[0])
        self.cp.add_element(self.start[seat], bend, ends[1])
        return span + ends[0] - ends[1]

    def _add_objective(self) -> None:
        """Sum and worst of stages and hops; the goal's maximum of the two."""
        times = self.times
        stages = [self._stage_ns(times, seat) for seat in self.seats]
        hops = [(arc, int(times.hop[pair])) for pair, arc in self.next.items()]
        hops += [(flag, int(self.columns.back(mode)[last, first]))
                 for (last, first, mode), flag in self.ends.items() if last != first]  # fmt: skip
        total = sum(stages) + sum(flag * ns for flag, ns in hops)
        self.value = total
        if not self.goal.worst_factor:
            return
        most = int(times.layers[:, -1].max() + times.embed.max() + times.head.max())
        most = max(most, *(ns for _, ns in hops), 1) if hops else max(most, 1)
        worst = self.cp.new_int_var(0, most, "worst")
        names = self.problem.seats
        for name in dict.fromkeys(names):  # seats of one device take turns
            self.cp.add(worst >= sum(stages[seat] for seat in self.seats if names[seat] == name))
        for flag, ns in hops:
            self.cp.add(worst >= ns).only_enforce_if(flag)
        if not self.goal.sum_factor:
            self.value = self.goal.worst_factor * worst
            return
        value = self.cp.new_int_var(0, self.goal.worst_factor * most * (1 + len(self.seats)), "")
        self.cp.add(value >= self.goal.worst_factor * worst)
        self.cp.add(value >= self.goal.sum_factor * total)
        self.value = value

    def _stage_ns(self, times: Times, seat: int) -> Any:
        span = self._span(times.layers[seat], seat)
        return (span + self.first[seat] * int(times.embed[seat])
                + self._head_at(seat) * int(times.head[seat]))  # fmt: skip

    def add_hint(self, shape: Shape) -> None:
        cuts = {seat: shape.cuts[i : i + 2] for i, seat in enumerate(shape.seats)}
        for seat in self.seats:
            first, end = cuts.get(seat, (0, 0))
            self.cp.add_hint(self.used[seat], seat in cuts)
            self.cp.add_hint(self.start[seat], first)
            self.cp.add_hint(self.end[seat], end)
        follows = set(zip(shape.seats, shape.seats[1:], strict=False))
        for pair, arc in self.next.items():
            self.cp.add_hint(arc, pair in follows)
        chosen = (shape.seats[-1], shape.seats[0], shape.mode)
        for key, flag in self.ends.items():
            self.cp.add_hint(flag, key == chosen)


def _runs(stage_layers: tuple[int, ...]) -> list[tuple[int, int]]:
    ends = np.cumsum(stage_layers).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))
