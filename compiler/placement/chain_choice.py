"""From a value to the one shape: the design's order of preference among shapes of equal value.

names of devices in stage order, then the head last before first, then the earliest cuts, then the
earliest stages for free blocks.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from plancc.compiler.placement.columns import ColumnSet, subsets
from plancc.compiler.placement.paths import Chains, Limits, Start
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.seat_sets import after as set_after
from plancc.compiler.placement.seat_sets import may_follow


@dataclass(frozen=True)
class Shape:
    """Stages in order: stage s is layers [cuts[s], cuts[s + 1]) on seats[s]."""

    seats: tuple[int, ...]
    cuts: tuple[int, ...]
    mode: str  # where the head is: last | first
    block_stages: tuple[int, ...]  # stage of each free block


@dataclass(frozen=True)
class Target:
    """Shapes of `num_stages` whose summed cost is at most `value`, under the limits."""

    value: int
    num_stages: int
    limits: Limits


def most_headroom(columns: ColumnSet, starts: list[Start], target: Target) -> int:
    """The largest least_free at which the target can still be met: the tightest device's room."""
    rooms = np.unique(np.concatenate(
        [table.free[table.legal & (table.free >= 0)] for table in columns.by_key.values()]
    ))  # fmt: skip
    low, high = 0, len(rooms) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if meets(columns, starts, target, int(rooms[middle])):
            low = middle
        else:
            high = middle - 1
    return int(rooms[low])


def meets(columns: ColumnSet, starts: list[Start], target: Target, least_free: int) -> bool:
    chains = Chains(columns, "sum", Limits(least_free, target.limits.most))
    return any(least_total(chains, start, target.num_stages) <= target.value for start in starts)


def least_total(chains: Chains, start: Start, num_stages: int) -> int:
    """Least summed cost of a chain of exactly n stages from this start."""
    rest = chains.to_go(start, num_stages)
    return min(int(_open(chains, start, rest, blocks).min()) for blocks in _sets(chains))


def choose(columns: ColumnSet, starts: list[Start], target: Target) -> Shape:
    """The preferred shape among those that meet the target; there must be one."""
    chains = Chains(columns, "sum", target.limits)
    names = chains.problem.seats
    rest = {start: chains.to_go(start, target.num_stages) for start in starts}
    good = [s for s in starts if any(_open(chains, s, rest[s], b).min() <= target.value
                                     for b in _sets(chains))]  # fmt: skip
    first = min({seat for _, seat in good}, key=lambda seat: (names[seat], seat))
    modes = [mode for mode, seat in good if seat == first]
    seats = [first]
    so_far = {mode: _first_states(chains, (mode, first)) for mode in modes}
    while len(seats) < target.num_stages:
        seat, so_far = _next_seat(chains, rest, target, seats, so_far)
        seats.append(seat)
    mode = next(m for m in chains.problem.head_modes if m in so_far)
    return _cut(chains, tuple(seats), mode, target)


def _sets(chains: Chains) -> list[int]:
    return subsets(chains.all_blocks)


def _open(chains: Chains, start: Start, rest: Table, blocks: int) -> Table:
    """[layer] cost of first column plus the rest, by where the first stage ends."""
    mode, first = start
    state = chains.state(first, 1 << first, blocks)
    return chains.join(chains.priced[mode, blocks][first, 0], rest[state, first])


def _first_states(chains: Chains, start: Start) -> Table:
    """[blocks, layer] least cost of the first stage."""
    mode, first = start
    return np.stack([chains.priced[mode, blocks][first, 0] for blocks in _sets(chains)])


def _next_seat(
    chains: Chains, rest: dict[Start, Table], target: Target, seats: list[int],
    so_far: dict[str, Table],
) -> tuple[int, dict[str, Table]]:  # fmt: skip
    """The first name that can follow, and the states (least cost so far) behind it."""
    names, chosen = chains.problem.seats, 1 << seats[0]
    for seat in seats[1:]:
        chosen = set_after(chains.problem, chosen, seat)
    options = [s for s in range(chains.num_seats) if may_follow(chains.problem, chosen, s)]
    for seat in sorted(options, key=lambda s: (names[s], s)):
        after: dict[str, Table] = {}
        for mode, states in so_far.items():
            grown = advance(chains, mode, states, seats[-1], seat)
            grown_set = set_after(chains.problem, chosen, seat)
            index = [chains.state(seats[0], grown_set, blocks) for blocks in _sets(chains)]
            total = chains.join(grown, rest[mode, seats[0]][index, seat])
            if total.min() <= target.value:
                after[mode] = np.where(total <= target.value, grown, INF)
        if after:
            return seat, after
    raise AssertionError("a chain that meets its target has a next seat")


def advance(chains: Chains, mode: str, states: Table, before: int, seat: int) -> Table:
    """[blocks, layer] least cost after one more stage on `seat`."""
    last = chains.num_layers
    out = np.full_like(states, INF)
    for placed in _sets(chains):
        arrive = chains.join(states[placed], chains.hop[before, seat])
        for blocks in subsets(chains.all_blocks & ~placed):
            column = chains.priced[mode, blocks][seat]
            ends = chains.join(arrive[1:last, None], column[1:last]).min(axis=0)
            out[placed | blocks] = np.minimum(out[placed | blocks], ends)
    return out


def _cut(chains: Chains, seats: tuple[int, ...], mode: str, target: Target) -> Shape:
    """Seats are decided: the earliest cuts, then the earliest stages for blocks."""
    rest = _rest_in_order(chains, seats, mode)
    cuts, spent, states = [0], 0, {0: 0}  # placed blocks -> least cost so far
    for stage, seat in enumerate(seats):
        options: dict[int, dict[int, int]] = {}
        for placed, cost in states.items():
            hop = int(chains.hop[seats[stage - 1], seat]) if stage else 0
            for blocks in subsets(chains.all_blocks & ~placed):
                column = chains.priced[mode, blocks][seat, cuts[-1]]
                total = cost + hop + column + rest[stage + 1][placed | blocks]
                for last in np.flatnonzero(total <= target.value).tolist():
                    reached = options.setdefault(last, {})
                    value = int(cost + hop + column[last])
                    known = reached.get(placed | blocks, value)
                    reached[placed | blocks] = min(known, value)
        end = min(options.keys())
        cuts.append(end)
        states = options[end]
        spent = min(states.values())
    assert spent <= target.value
    return Shape(seats, tuple(cuts), mode, _blocks(chains, seats, tuple(cuts), mode, target))


def _rest_in_order(chains: Chains, seats: tuple[int, ...], mode: str) -> list[Table]:
    """[stage][blocks, layer] least cost of stages stage.. when the ones before end at a layer."""
    last = chains.num_layers
    final = np.full((chains.all_blocks + 1, last + 1), INF)
    home = 0 if len(seats) == 1 else int(chains.back[mode][seats[-1], seats[0]])
    final[chains.all_blocks, last] = home
    tables = [final]
    for stage in range(len(seats) - 1, -1, -1):
        hop = int(chains.hop[seats[stage - 1], seats[stage]]) if stage else 0
        table = np.full_like(final, INF)
        for placed in _sets(chains):
            for blocks in subsets(chains.all_blocks & ~placed):
                column = chains.priced[mode, blocks][seats[stage]]
                total = chains.join(column, tables[0][placed | blocks][None, :]).min(axis=1)
                table[placed] = np.minimum(table[placed], np.minimum(total + hop, INF))
        tables.insert(0, table)
    return tables


def _blocks(
    chains: Chains, seats: tuple[int, ...], cuts: tuple[int, ...], mode: str, target: Target
) -> tuple[int, ...]:
    """The first assignment, block by block and stage by stage, that meets the target."""
    count = len(chains.problem.free_blocks)
    for code in range(len(seats) ** count):
        stages = tuple(code // len(seats) ** (count - 1 - k) % len(seats) for k in range(count))
        sets = [sum(1 << k for k, s in enumerate(stages) if s == stage)
                for stage in range(len(seats))]  # fmt: skip
        if _total(chains, seats, cuts, mode, sets) <= target.value:
            return stages
    raise AssertionError("cuts that meet the target have a place for every block")


def _total(
    chains: Chains, seats: tuple[int, ...], cuts: tuple[int, ...], mode: str, sets: list[int]
) -> int:
    columns = [int(chains.priced[mode, sets[i]][seat, cuts[i], cuts[i + 1]])
               for i, seat in enumerate(seats)]  # fmt: skip
    hops = [int(chains.hop[a, b]) for a, b in itertools.pairwise(seats)]
    home = int(chains.back[mode][seats[-1], seats[0]]) if len(seats) > 1 else 0
    return sum(columns) + sum(hops) + home
