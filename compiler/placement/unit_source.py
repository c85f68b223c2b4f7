"""Where columns of units come from: hopeful first, then settled on the best deal that fits.

A group that is dearer than fewer of its devices on the same layers, whatever stands before and
after, is in no chosen chain: such columns are never settled at all.
"""

from dataclasses import replace

import numpy as np

from plancc.compiler.cost.comm import transfers_ns
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.deals import DealTables
from plancc.compiler.placement.group_rooms import GroupRooms
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.unit_columns import HOPEFUL, Bools, UnitColumns, appended
from plancc.compiler.placement.units import Unit
from plancc.ir.groups import spread_pairs
from plancc.ir.sizes import hidden_row_bytes

DEALS_AT_A_TIME = 24
RUNS_AT_A_TIME = 1024
ALMOST = 1 - 1e-9  # a ratio in float64 errs by less


class UnitSource:
    """Columns of every unit for one head mode and one step's times."""

    def __init__(self, columns: ColumnSet, deals: DealTables, mode: str) -> None:
        self.problem, self.columns, self.deals = columns.problem, columns, deals
        self.mode, self.units = mode, deals.units
        self.rooms = GroupRooms(self.problem, mode)
        self.block_sets = 1 << len(self.problem.free_blocks)

    def columns_of(self, number: int, blocks: int, known: UnitColumns | None = None) -> UnitColumns:
        """Every column that a unit may hold. `known`: those with the head elsewhere, if at hand."""
        if self.units[number].mixer == "single":
            return self._single(number, blocks)
        first, end = self._runs(number, blocks)
        if known is None:
            return self._group(number, blocks, first, end)
        at_end = self._at_end(first, end)
        inner = known.take(~self._at_end(known.first, known.end))
        return appended(inner, self._group(number, blocks, first[at_end], end[at_end]))

    def whole(self, number: int, blocks: int) -> UnitColumns:
        """All layers on a group, if it may hold them; hopeful."""
        first, end = self._runs(number, blocks)
        is_whole = (first == 0) & (end == self.problem.num_layers)
        return self._group(number, blocks, first[is_whole], end[is_whole])

    def _at_end(self, first: Table, end: Table) -> Bools:
        """Runs that the head's place matters to."""
        return np.asarray((first == 0) | (end == self.problem.num_layers))

    def _runs(self, number: int, blocks: int) -> tuple[Table, Table]:
        """(first, end) of runs that a group may be asked to hold."""
        unit = self.units[number]
        legal = self.columns.by_key[self.mode, blocks].legal[unit.lead]
        legal = legal & (self.rooms.sizes.runs >= unit.size)
        if not unit.is_plain and not blocks:
            inner = legal[1:, : self.problem.num_layers]
            legal[1:, : self.problem.num_layers] = np.zeros_like(inner)
        first, end = np.nonzero(legal)
        return first, end

    def _single(self, number: int, blocks: int) -> UnitColumns:
        """Every column of one seat that fits; exact."""
        table, seat = self.columns.by_key[self.mode, blocks], self.units[number].lead
        first, end = np.nonzero(table.legal[seat] & (table.free[seat] >= 0))
        cost, free = table.cost[seat, first, end], table.free[seat, first, end]
        return self._columns(number, blocks, first, end, cost, free, np.zeros_like(cost))

    def _group(self, number: int, blocks: int, first: Table, end: Table) -> UnitColumns:
        """The columns of these runs that a group may hold; hopeful."""
        fits = self.rooms.may_fit(self.units[number], blocks, first, end)
        first, end = first[fits], end[fits]
        cost, deal = self._hopeful(number, blocks, first, end)
        some = cost < INF
        first, end, cost, deal = first[some], end[some], cost[some], deal[some]
        return self._columns(number, blocks, first, end, cost, np.zeros_like(cost), deal)

    def _columns(self, number: int, blocks: int, first: Table, end: Table, cost: Table,
                 free: Table, deal: Table) -> UnitColumns:  # fmt: skip
        count = len(first)
        return UnitColumns(np.full(count, number), np.full(count, blocks), first, end, cost, free,
                           deal)  # fmt: skip

    def _hopeful(self, number: int, blocks: int, first: Table, end: Table) -> tuple[Table, Table]:
        """(cost, deal) a lower bound, and HOPEFUL less the place of the first deal that may fit.

        Every layer at its own cheapest deal; and the ratio of the first deal that may fit, for that
        is the least ratio among those that do.
        """
        unit, tiles = self.units[number], self.rooms.sizes.runs[first, end]
        cost, deal = np.zeros(len(first), np.int64), np.full(len(first), HOPEFUL)
        for count in np.unique(tiles).tolist():
            here = np.flatnonzero(tiles == count)
            deals = self.deals.of(number, count)
            caps = self.rooms.caps(unit, blocks, count, first[here], end[here])
            place = deals.first_within(caps)
            floor = deals.least[end[here]] - deals.least[first[here]]
            ratio = np.append(deals.ratio, np.inf)[place]
            with np.errstate(invalid="ignore"):
                bound = np.where(place < len(deals.ratio), np.floor(ratio * floor * ALMOST), INF)
            cost[here], deal[here] = np.maximum(floor, bound.astype(np.int64)), HOPEFUL - place
        return np.minimum(cost + self._ends(unit, first, end), INF), deal

    def _ends(self, unit: Unit, first: Table, end: Table) -> Table:
        """ns of embedding, head, and the spreading of embedded rows."""
        times, is_last = self.columns.times, end == self.problem.num_layers
        cost = (first == 0) * (times.embed[unit.lead] + self._spread(unit))
        has_head = first == 0 if self.mode == "first" else is_last
        return np.asarray(cost + has_head * times.head[unit.lead], np.int64)

    def _spread(self, unit: Unit) -> int:
        names = [self.problem.seats[seat] for seat in unit.seats]
        size = self.deals.times.work.rows * hidden_row_bytes(self.problem.model)
        pairs = spread_pairs(unit.mixer, unit.size)
        return transfers_ns(self.problem.topology, [(names[a], names[b], size) for a, b in pairs])

    def settle(self, columns: UnitColumns) -> UnitColumns:
        """Exact columns: the cheapest deal that fits and its room; INF where none does."""
        cost, free, deal = (np.array(a) for a in (columns.cost, columns.free, columns.deal))
        hopeful = np.flatnonzero(columns.deal <= HOPEFUL)
        tiles = self.rooms.sizes.runs[columns.first, columns.end]
        keys = (columns.unit * self.block_sets + columns.blocks) * 1000 + tiles
        order = hopeful[np.argsort(keys[hopeful], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            for low in range(0, len(part), RUNS_AT_A_TIME):
                some = part[low : low + RUNS_AT_A_TIME]
                cost[some], free[some], deal[some] = self._settled(columns.take(some))
        return replace(columns, cost=cost, free=free, deal=deal)

    def first_deal(self, column: UnitColumns, room: int) -> int:
        """The lowest number of a deal that costs what the column does and leaves `room`."""
        number, blocks = int(column.unit[0]), int(column.blocks[0])
        unit, first, end = self.units[number], column.first, column.end
        tiles = int(self.rooms.sizes.runs[first[0], end[0]])
        deals = self.deals.of(number, tiles)
        left = self.rooms.left(unit, blocks, tiles, first, end, deals.order)[:, 0]
        cost = (deals.sums[:, end] - deals.sums[:, first])[:, 0] + self._ends(unit, first, end)
        return int(deals.order[(cost == column.cost[0]) & (left >= room)].min())

    def _settled(self, part: UnitColumns) -> tuple[Table, Table, Table]:
        """(cost, free, deal) of columns of one unit, one set of blocks and one number of tiles.

        Of equal deals the roomiest, then the first.
        """
        number, blocks = int(part.unit[0]), int(part.blocks[0])
        unit, tiles = self.units[number], int(self.rooms.sizes.runs[part.first[0], part.end[0]])
        deals = self.deals.of(number, tiles)
        floor = deals.least[part.end] - deals.least[part.first]
        best, place = np.full(len(part), INF), HOPEFUL - part.deal
        room, deal = np.full_like(best, -1), np.full_like(best, HOPEFUL)
        for low in range(int(place.min()), len(deals.order), DEALS_AT_A_TIME):
            some = slice(low, low + DEALS_AT_A_TIME)
            undecided = deals.ratio[low] * floor * ALMOST <= best
            now = np.flatnonzero(undecided & (place < low + DEALS_AT_A_TIME))
            if not len(now):
                if not undecided.any():
                    break
                continue
            first, end = part.first[now], part.end[now]
            left = self.rooms.left(unit, blocks, tiles, first, end, deals.order[some])
            cost = deals.sums[some][:, end] - deals.sums[some][:, first]
            cost = np.where(left >= 0, cost, INF)
            _improve(best, room, deal, now, cost, left, deals.order[some])
        return np.minimum(best + self._ends(unit, part.first, part.end), INF), room, deal


def _improve(best: Table, room: Table, deal: Table, places: Table, cost: Table, left: Table,
             numbers: Table) -> None:  # fmt: skip
    """Take over the better deals: cheaper, else as cheap and roomier, else of a lower number."""
    least = cost.min(axis=0)
    roomy = np.where(cost == least, left, -INF)
    most = roomy.max(axis=0)
    number = np.where(roomy == most, numbers[:, None], INF).min(axis=0)
    old = best[places], room[places], deal[places]
    better = (least < old[0]) | ((least == old[0]) & (least < INF) & (
        (most > old[1]) | ((most == old[1]) & (number < old[2]))))  # fmt: skip
    chosen = places[better]
    best[chosen], room[chosen], deal[chosen] = least[better], most[better], number[better]
