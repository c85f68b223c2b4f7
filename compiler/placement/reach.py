"""Does anything fit? For each set of seats, the furthest layer that a chain over them can reach.

Reaching further on the same seats is never worse, so one number a set decides fitting exactly: no
times, hence quick enough to search contexts and slots with. Whether a group holds a run is first
tried with tiles dealt by the ranks' rooms, and by every deal where that does not fit.
"""

from collections.abc import Callable, Iterator

import numpy as np

from plancc.compiler.placement.columns import ColumnSet, column_set, subsets
from plancc.compiler.placement.group_rooms import GroupRooms
from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.shares import deal_spans
from plancc.compiler.placement.timeless import no_times
from plancc.compiler.placement.unit_columns import Bools
from plancc.compiler.placement.units import Unit, seats_before

DEALS_AT_A_TIME = 64
Ends = tuple[list[int], list[bool]]
State = tuple[int, int]


def chains_fit(problem: Problem, units: tuple[Unit, ...]) -> bool:
    """Some legal chain of these units leaves every device within its budget."""
    columns = column_set(problem, no_times(problem))
    return any(_Reach(problem, columns, units, mode).ends() for mode in problem.head_modes)


def largest(low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The largest value in [low, high] for which `holds`, which is true up to some value."""
    if not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


class _Reach:
    def __init__(
        self, problem: Problem, columns: ColumnSet, units: tuple[Unit, ...], mode: str
    ) -> None:
        self.problem, self.columns, self.units, self.mode = problem, columns, units, mode
        self.rooms = GroupRooms(problem, mode)
        self.all_blocks = (1 << len(problem.free_blocks)) - 1
        self.before = [seats_before(problem, unit) for unit in units]
        self.known: dict[tuple[int, int], Ends] = {}

    def ends(self) -> bool:
        """Use seats in order of their number, until a chain ends at the last layer."""
        waiting: dict[int, dict[State, int]] = {0: {(0, 0): 0}}
        for used_devices in range(self.problem.num_seats):
            for (used, placed), here in sorted(waiting.pop(used_devices, {}).items()):
                for number, unit in self._followers(used):
                    devices = used_devices + unit.size
                    for blocks in subsets(self.all_blocks & ~placed):
                        furthest, is_last = self._ends(number, blocks)
                        if is_last[here] and placed | blocks == self.all_blocks:
                            return True
                        if furthest[here]:
                            states = waiting.setdefault(devices, {})
                            state = self._state(used, unit), placed | blocks
                            states[state] = max(states.get(state, 0), furthest[here])
        return False

    def _followers(self, used: int) -> Iterator[tuple[int, Unit]]:
        """Units that may come next: no seat twice, equals by name, the asked order, the limit."""
        most = self.problem.ask.max_devices or self.problem.num_seats
        for number, unit in enumerate(self.units):
            if used & unit.mask or used.bit_count() + unit.size > most:
                continue
            in_order = not self.problem.in_order or not used >> min(unit.seats)
            if in_order and used & self.before[number] == self.before[number]:
                yield number, unit

    def _state(self, used: int, unit: Unit) -> int:
        """The set used; where the order is given the last seat and the number say enough."""
        grown = used | unit.mask
        if not self.problem.in_order:
            return grown
        last, others = grown.bit_length() - 1, grown.bit_count() - 1
        return 1 << last | (1 << others) - 1

    def _ends(self, number: int, blocks: int) -> Ends:
        """[first] the furthest end short of the last layer (0: none), and may it be the last."""
        if (number, blocks) not in self.known:
            fit, last = self._fits(self.units[number], blocks), self.problem.num_layers
            before = fit[:, :last] * np.arange(last)
            self.known[number, blocks] = before.max(axis=1).tolist(), fit[:, last].tolist()
        return self.known[number, blocks]

    def _fits(self, unit: Unit, blocks: int) -> Bools:
        table = self.columns.by_key[self.mode, blocks]
        if unit.mixer == "single":
            return np.asarray(table.legal[unit.lead] & (table.free[unit.lead] >= 0))
        fit = np.zeros(table.legal[unit.lead].shape, bool)
        tiles = self.rooms.sizes.runs
        first, end = np.nonzero(table.legal[unit.lead] & (tiles >= unit.size))
        hopeful = self.rooms.may_fit(unit, blocks, first, end)
        first, end = first[hopeful], end[hopeful]
        for count in np.unique(tiles[first, end]).tolist():
            here = tiles[first, end] == count
            fit[first[here], end[here]] = self._holds(unit, blocks, count, first[here], end[here])
        return fit

    def _holds(self, unit: Unit, blocks: int, tiles: int, first: Table, end: Table) -> Bools:
        """Exactly: some deal leaves every rank room."""
        spans = deal_spans(unit.size, tiles)
        order = self._by_room(unit, blocks, spans, first, end)
        holds = np.zeros(len(first), bool)
        for low in range(0, len(order), DEALS_AT_A_TIME):
            open_ = np.flatnonzero(~holds)
            if not len(open_):
                break
            some = order[low : low + DEALS_AT_A_TIME]
            left = self.rooms.left(unit, blocks, tiles, first[open_], end[open_], some)
            holds[open_] = (left >= 0).any(axis=0)
        return holds

    def _by_room(self, unit: Unit, blocks: int, spans: Table, first: Table, end: Table) -> Table:
        """Numbers of deals, those nearest to the ranks' rooms for the longest run first."""
        longest = np.array([(end - first).argmax()])
        rooms = [self.rooms.room(unit, rank, blocks, first[longest], end[longest])[0]
                 for rank in range(unit.size)]  # fmt: skip
        share = np.maximum(np.array(rooms, np.float64), 0) / max(1, sum(max(r, 0) for r in rooms))
        sizes = spans[:, :, 1] - spans[:, :, 0]
        distance = np.abs(sizes - share * spans[0, -1, 1]).max(axis=1)
        return np.argsort(distance, kind="stable")
