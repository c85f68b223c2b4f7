"""The choice by CP-SAT alone, one preference after the other.

For what the subset DP does not take: seats that share a device's budget, or more seats than it has
room for. Each preference is optimised, then kept as a row for the next.
"""

from dataclasses import replace
from typing import Any

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.cpsat import Bound, ChainModel, Goal
from plancc.compiler.placement.problem import Problem


def least_value(columns: ColumnSet, goal: Goal) -> Bound | None:
    """The goal's least value; None where nothing fits."""
    model = ChainModel(columns, goal)
    model.cp.minimize(model.value)
    return model.solve()[0]


def found_shape(columns: ColumnSet, goal: Goal) -> tuple[Shape, Bound] | None:
    """The best shape met within the limit, with its bound; no preference among equals."""
    model = ChainModel(columns, goal)
    model.cp.minimize(model.value)
    bound, solver = model.solve()
    return None if bound is None else (shape_in(model, solver), bound)


def fewest_stages(columns: ColumnSet, goal: Goal, most: int) -> int:
    """The fewest stages of a shape whose value is at most `most`; there is one."""
    model = ChainModel(columns, goal)
    model.cp.add(model.value <= most)
    model.cp.minimize(sum(model.used))
    bound, _ = model.solve()
    assert bound is not None
    return bound.value


def preferred_shape(columns: ColumnSet, goal: Goal) -> tuple[Shape, Bound]:
    """Least value at the goal's number of stages, then room, names, head mode, cuts, blocks."""
    assert goal.num_stages is not None
    chosen = least_value(columns, goal)
    assert chosen is not None
    model = ChainModel(columns, goal)
    model.cp.add(model.value <= chosen.value)
    room = _room(model)
    _keep(model, -room)
    seats = _names(model, goal.num_stages)
    _keep(model, sum(flag for (_, _, mode), flag in model.ends.items() if mode == "first"))
    for seat in seats:
        _keep(model, model.end[seat])
    for flags in model.block:
        _keep(model, sum(seats.index(seat) * flag for seat, flag in flags.items() if seat in seats))
    return _shape(model, seats), chosen


def _room(model: ChainModel) -> Any:
    """A variable at most the free bytes of every used device."""
    problem = model.problem
    top = int(problem.budgets.max())
    room = model.cp.new_int_var(0, top, "room")
    for name, filled in model.filled.items():
        here = [seat for seat in model.seats if problem.seats[seat] == name]
        budget = int(problem.budgets[here[0]])
        for seat in here:
            model.cp.add(room <= budget - filled).only_enforce_if(model.used[seat])
    return room


def _keep(model: ChainModel, expression: Any) -> int:
    """Minimise the expression, and hold it at its minimum from now on."""
    if isinstance(expression, int):
        return expression
    model.cp.minimize(expression)
    bound, _ = model.solve()
    assert bound is not None
    model.cp.add(expression <= bound.value)
    return bound.value


def _names(model: ChainModel, num_stages: int) -> list[int]:
    """Seats in stage order, each the first by name that the rows so far allow."""
    names = model.problem.seats
    rank = {seat: place for place, seat in
            enumerate(sorted(model.seats, key=lambda seat: (names[seat], seat)))}  # fmt: skip
    by_rank = {place: seat for seat, place in rank.items()}
    seats = [by_rank[_keep(model, sum(rank[s] * model.first[s] for s in model.seats))]]
    for _ in range(num_stages - 1):
        arcs = {two: arc for (one, two), arc in model.next.items() if one == seats[-1]}
        seats.append(by_rank[_keep(model, sum(rank[s] * arc for s, arc in arcs.items()))])
    return seats


def _shape(model: ChainModel, seats: list[int]) -> Shape:
    """The shape that is left; every part of it has been decided by now."""
    model.cp.clear_objective()  # type: ignore[no-untyped-call]
    bound, solver = model.solve()
    assert bound is not None
    shape = shape_in(model, solver)
    assert list(shape.seats) == seats
    return shape


def shape_in(model: ChainModel, solver: Any) -> Shape:
    """The shape of a solution."""
    chosen = [seat for seat in model.seats if solver.value(model.used[seat])]
    seats = sorted(chosen, key=lambda seat: solver.value(model.start[seat]))
    cuts = (0, *(solver.value(model.end[seat]) for seat in seats))
    mode = next(key[2] for key, flag in model.ends.items() if solver.value(flag))
    homes = tuple(next(seats.index(seat) for seat, flag in flags.items() if solver.value(flag))
                  for flags in model.block)  # fmt: skip
    return Shape(tuple(seats), cuts, mode, homes)


def with_stages(goal: Goal, num_stages: int) -> Goal:
    return replace(goal, num_stages=num_stages)


def needs_search(problem: Problem, most_seats: int) -> bool:
    """Whether the subset DP has no answer: a shared budget, or too many unlike seats."""
    if problem.shares_devices:
        return True
    return not problem.in_order and _num_sets(problem) > 1 << most_seats


def _num_sets(problem: Problem) -> int:
    """Sets of seats that may_follow leaves: equal seats only count by how many are used."""
    product = 1
    for number in set(problem.seat_classes):
        product *= 1 + problem.seat_classes.count(number)
    return product
