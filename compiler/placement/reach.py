"""Does anything fit? For each set of seats, the furthest layer that a chain over them can reach.

Reaching further on the same seats is never worse, so one number a set decides fitting exactly: no
times, hence quick enough to search contexts and slots with.
"""

from collections.abc import Callable

import numpy as np

from plancc.compiler.placement.columns import ColumnSet, column_set, subsets
from plancc.compiler.placement.paths import may_follow
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.timeless import no_times


def fits(problem: Problem) -> bool:
    """Some legal chain leaves every seat's device within its budget."""
    columns = column_set(problem, no_times(problem))
    return any(_reaches(columns, mode, first) for mode in problem.head_modes
               for first in range(problem.num_seats) if may_follow(problem, 0, first))  # fmt: skip


def _reaches(columns: ColumnSet, mode: str, first: int) -> bool:
    problem = columns.problem
    width, all_blocks = problem.num_seats, (1 << len(problem.free_blocks)) - 1
    if _allows(problem, 1) and _fits_run(columns, mode, all_blocks, first, 0):
        return True
    best = {1 << first | blocks << width: _before_last(columns, mode, blocks, first, 0)
            for blocks in subsets(all_blocks)}  # fmt: skip
    return _grow(columns, mode, best, all_blocks)


def _grow(columns: ColumnSet, mode: str, best: dict[int, int], all_blocks: int) -> bool:
    """Add seats to sets in order of size, until one chain ends at the last layer."""
    problem, width = columns.problem, columns.problem.num_seats
    frontier = sorted(best)
    while frontier:
        after: dict[int, int] = {}
        for state in frontier:
            chosen, placed = state & ((1 << width) - 1), state >> width
            for seat in range(width):
                if best[state] <= 0 or not may_follow(problem, chosen, seat):
                    continue
                for blocks in subsets(all_blocks & ~placed):
                    here = best[state]
                    if (placed | blocks) == all_blocks and _allows(problem, chosen.bit_count() + 1):
                        if _fits_run(columns, mode, blocks, seat, here):
                            return True
                    target = chosen | 1 << seat | (placed | blocks) << width
                    end = _before_last(columns, mode, blocks, seat, here)
                    after[target] = max(after.get(target, 0), end)
        best = after
        frontier = sorted(state for state, end in after.items() if end > 0)
    return False


def _allows(problem: Problem, num_stages: int) -> bool:
    most = problem.ask.max_devices
    if most is not None and num_stages > most:
        return False
    return not problem.all_seats or num_stages == problem.num_seats


def _ok(columns: ColumnSet, mode: str, blocks: int) -> np.ndarray:
    table = columns.by_key[mode, blocks]
    return table.legal & (table.free >= 0)


def _fits_run(columns: ColumnSet, mode: str, blocks: int, seat: int, first: int) -> bool:
    return bool(_ok(columns, mode, blocks)[seat, first, columns.problem.num_layers])


def _before_last(columns: ColumnSet, mode: str, blocks: int, seat: int, first: int) -> int:
    """The furthest layer short of the last that a stage from `first` reaches; 0 for none."""
    ends = np.flatnonzero(_ok(columns, mode, blocks)[seat, first, : columns.problem.num_layers])
    return int(ends.max()) if len(ends) else 0


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest value in [low, high] for which `holds`, which is true up to some value."""
    if not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
