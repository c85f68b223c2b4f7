"""Which seats may come next, and the sets of seats that chains can have used.

Equal seats are used in the order of their names, so a set is how many of each class. Where stages
follow the order of seats only the first, the last and their number matter: one set stands for all.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.problem import Problem

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SeatSets:
    """The sets that chains from one first seat can have used.

    `moves[n]`: next seat -> (rows of sets of n seats, rows of the sets with it added).
    """

    sets: tuple[int, ...]
    row: dict[int, int]
    count: tuple[int, ...]
    moves: tuple[dict[int, tuple[Rows, Rows]], ...]

    def rows_of(self, count: int) -> Rows:
        return np.array([r for r, n in enumerate(self.count) if n == count], np.int64)


def may_follow(problem: Problem, chosen: int, seat: int) -> bool:
    """May `seat` be the next stage after the set `chosen`? Order, and one name of equals first."""
    if chosen >> seat & 1:
        return False
    if problem.in_order:
        return chosen < 1 << seat and (not problem.all_seats or chosen == (1 << seat) - 1)
    return chosen & _earlier(problem.seat_classes)[seat] == _earlier(problem.seat_classes)[seat]


@cache
def _earlier(classes: tuple[int, ...]) -> tuple[int, ...]:
    """[seat] the seats of its class that come before it, as a set."""
    return tuple(sum(1 << s for s in range(seat) if classes[s] == classes[seat])
                 for seat in range(len(classes)))  # fmt: skip


def after(problem: Problem, chosen: int, seat: int) -> int:
    """The set that stands for `chosen` and `seat`."""
    grown = chosen | 1 << seat
    if not problem.in_order or problem.all_seats:
        return grown
    first = (grown & -grown).bit_length() - 1
    between = (1 << grown.bit_count() - 2) - 1
    return 1 << first | between << first + 1 | 1 << seat


def sets_from(problem: Problem, first: int) -> SeatSets:
    """Everything that can follow `first`, by number of seats."""
    levels, moves = [[1 << first]], []
    while levels[-1]:
        steps: dict[int, list[tuple[int, int]]] = {}
        for seat in range(problem.num_seats):
            pairs = [
                (s, after(problem, s, seat)) for s in levels[-1] if may_follow(problem, s, seat)
            ]
            if pairs:
                steps[seat] = pairs
        moves.append(steps)
        levels.append(sorted({target for pairs in steps.values() for _, target in pairs}))
    sets = tuple(chosen for level in levels for chosen in level)
    row = {chosen: index for index, chosen in enumerate(sets)}
    return SeatSets(sets, row, tuple(n + 1 for n, level in enumerate(levels) for _ in level),
                    ({}, *({seat: _rows(row, pairs) for seat, pairs in steps.items()}
                           for steps in moves)))  # fmt: skip


def _rows(row: dict[int, int], pairs: list[tuple[int, int]]) -> tuple[Rows, Rows]:
    found = np.array([(row[one], row[two]) for one, two in pairs], np.int64)
    return found[:, 0], found[:, 1]
