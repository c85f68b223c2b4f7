"""Does anything fit? For each set of seats, the furthest layer that a chain over them can reach.

Reaching further on the same seats is never worse, so one number a set decides fitting exactly: no
times, hence quick enough to search contexts and slots with.
"""

from collections.abc import Callable

import numpy as np

from plancc.compiler.placement.columns import ColumnSet, column_set, subsets
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.seat_sets import after, may_follow
from plancc.compiler.placement.timeless import no_times


def fits(problem: Problem) -> bool:
    """Some legal chain leaves every seat's device within its budget."""
    columns = column_set(problem, no_times(problem))
    return any(_some_chain_ends(columns, mode) for mode in problem.head_modes)


def _some_chain_ends(columns: ColumnSet, mode: str) -> bool:
    """Add seats to sets in order of size, until one chain ends at the last layer."""
    problem = columns.problem
    all_blocks = (1 << len(problem.free_blocks)) - 1
    ends = {blocks: _ends(columns, mode, blocks) for blocks in subsets(all_blocks)}
    best = {(0, 0): 0}  # (seats used, blocks placed) -> furthest layer
    for count in range(1, problem.num_seats + 1):
        grown: dict[tuple[int, int], int] = {}
        for (chosen, placed), here in best.items():
            for seat in range(problem.num_seats):
                if not may_follow(problem, chosen, seat):
                    continue
                target = after(problem, chosen, seat) if chosen else 1 << seat
                for blocks in subsets(all_blocks & ~placed):
                    furthest, is_last = ends[blocks]
                    if placed | blocks == all_blocks and is_last[seat][here]:
                        if _allows(problem, count):
                            return True
                    key = target, placed | blocks
                    if furthest[seat][here] > grown.get(key, 0):
                        grown[key] = furthest[seat][here]
        best = grown
    return False


def _allows(problem: Problem, num_stages: int) -> bool:
    most = problem.ask.max_devices
    if most is not None and num_stages > most:
        return False
    return not problem.all_seats or num_stages == problem.num_seats


def _ends(columns: ColumnSet, mode: str, blocks: int) -> tuple[list[list[int]], list[list[bool]]]:
    """[seat][first] the furthest end short of the last layer (0: none), and may it be the last."""
    table, last = columns.by_key[mode, blocks], columns.problem.num_layers
    fit = table.legal & (table.free >= 0)
    before = fit[:, :, :last] * np.arange(last)
    return before.max(axis=2).tolist(), fit[:, :, last].tolist()


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest value in [low, high] for which `holds`, which is true up to some value."""
    if not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
