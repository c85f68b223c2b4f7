"""Where columns of units come from: hopeful first, then settled on the best deal that fits.

A group that is dearer than fewer of its devices on the same layers, whatever stands before and
after, is in no chosen chain: such columns are never settled at all.
"""

from functools import cached_property

import numpy as np

from plancc.compiler.cost.comm import transfers_ns
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.group_rooms import GroupRooms
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.unit_columns import HOPEFUL, UnitColumns
from plancc.compiler.placement.units import Unit
from plancc.ir.groups import spread_pairs
from plancc.ir.sizes import hidden_row_bytes

DEALS_AT_A_TIME = 24
RUNS_AT_A_TIME = 1024


class UnitSource:
    """Columns of every unit for one head mode, one step's times and one least room."""

    def __init__(self, columns: ColumnSet, times: ShareTimes, mode: str, units: tuple[Unit, ...],
                 least_free: int = 0) -> None:  # fmt: skip
        self.problem, self.columns, self.times = columns.problem, columns, times
        self.mode, self.units, self.least_free = mode, units, least_free
        self.rooms = GroupRooms(self.problem, mode)
        self.block_sets = 1 << len(self.problem.free_blocks)
        self._deals: dict[tuple[int, int], tuple[Table, Table, Table]] = {}

    def columns_of(self, number: int, blocks: int) -> UnitColumns:
        """Every column that a unit may hold."""
        is_single = self.units[number].mixer == "single"
        return self._single(number, blocks) if is_single else self._group(number, blocks)

    def _single(self, number: int, blocks: int) -> UnitColumns:
        """Every column of one seat that fits; exact."""
        table, seat = self.columns.by_key[self.mode, blocks], self.units[number].lead
        first, end = np.nonzero(table.legal[seat] & (table.free[seat] >= self.least_free))
        return self._columns(number, blocks, first, end, table.cost[seat, first, end],
                             table.free[seat, first, end], 0)  # fmt: skip

    def _group(self, number: int, blocks: int) -> UnitColumns:
        """The columns that a group may hold; hopeful."""
        unit = self.units[number]
        legal = self.columns.by_key[self.mode, blocks].legal[unit.lead]
        first, end = np.nonzero(legal & (self.rooms.sizes.runs >= unit.size))
        if not unit.is_plain:
            at_end = (first == 0) | (end == self.problem.num_layers)
            first, end = first[at_end], end[at_end]
        fits = self.rooms.may_fit(unit, blocks, self.least_free, first, end)
        first, end = first[fits], end[fits]
        cost = self._hopeful(number, first, end)
        return self._columns(number, blocks, first, end, cost, np.zeros_like(cost), HOPEFUL)

    def _columns(self, number: int, blocks: int, first: Table, end: Table, cost: Table,
                 free: Table, deal: int) -> UnitColumns:  # fmt: skip
        count = len(first)
        return UnitColumns(np.full(count, number), np.full(count, blocks), first, end, cost, free,
                           np.full(count, deal))  # fmt: skip

    def _hopeful(self, number: int, first: Table, end: Table) -> Table:
        """Each layer at its own cheapest deal, whatever fits."""
        sums = sum((self._deals_of(number, tiles)[2] for tiles in self._tile_counts(number)),
                   np.zeros(self.problem.num_layers + 1, np.int64))  # fmt: skip
        return sums[end] - sums[first] + self._ends(self.units[number], first, end)

    def _tile_counts(self, number: int) -> list[int]:
        counts = np.unique(self.rooms.sizes.tiles).tolist()
        return [tiles for tiles in counts if tiles >= self.units[number].size]

    def _ends(self, unit: Unit, first: Table, end: Table) -> Table:
        """ns of embedding, head, and the spreading of embedded rows."""
        times, is_last = self.columns.times, end == self.problem.num_layers
        cost = (first == 0) * (times.embed[unit.lead] + self._spread(unit))
        has_head = first == 0 if self.mode == "first" else is_last
        return np.asarray(cost + has_head * times.head[unit.lead], np.int64)

    def _spread(self, unit: Unit) -> int:
        names = [self.problem.seats[seat] for seat in unit.seats]
        size = self.times.work.rows * hidden_row_bytes(self.problem.model)
        pairs = spread_pairs(unit.mixer, unit.size)
        return transfers_ns(self.problem.topology, [(names[a], names[b], size) for a, b in pairs])

    def _deals_of(self, number: int, tiles: int) -> tuple[Table, Table, Table]:
        """(order of deals, [deals, L + 1] sums in that order, [L + 1] sums of the cheapest).

        Ordered by the least ratio of a deal's layer to the cheapest deal's: a deal's run of layers
        costs at least its ratio times the cheapest.
        """
        key = number, tiles
        if key not in self._deals:
            layers = self.times.layers(self.units[number], tiles)
            layers[:, self.rooms.sizes.tiles != tiles] = 0
            least = layers.min(axis=0)
            ratio = (layers[:, least > 0] / least[least > 0]).min(axis=1)
            order = np.argsort(ratio, kind="stable")
            self._deals[key] = order, _prefix(layers), _prefix(least[None, :])[0]
            self._ratio[key] = ratio
        return self._deals[key]

    @cached_property
    def _ratio(self) -> dict[tuple[int, int], Table]:
        return {}

    def settle(self, columns: UnitColumns) -> UnitColumns:
        """Exact columns: of those that fit, the cheapest deal and its room. Others go."""
        cost, free, deal = (np.array(a) for a in (columns.cost, columns.free, columns.deal))
        hopeful = np.flatnonzero(columns.deal == HOPEFUL)
        tiles = self.rooms.sizes.runs[columns.first, columns.end]
        keys = (columns.unit * self.block_sets + columns.blocks) * 1000 + tiles
        order = hopeful[np.argsort(keys[hopeful], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            for low in range(0, len(part), RUNS_AT_A_TIME):
                some = part[low : low + RUNS_AT_A_TIME]
                cost[some], free[some], deal[some] = self._settled(columns.take(some))
        settled = UnitColumns(columns.unit, columns.blocks, columns.first, columns.end, cost,
                              free, deal)  # fmt: skip
        return settled.take(cost < INF)

    def first_deal(self, column: UnitColumns, room: int) -> int:
        """The lowest number of a deal that costs what the column does and leaves `room`."""
        number, blocks = int(column.unit[0]), int(column.blocks[0])
        unit, first, end = self.units[number], column.first, column.end
        tiles = int(self.rooms.sizes.runs[first[0], end[0]])
        order, sums, _ = self._deals_of(number, tiles)
        left = self.rooms.left(unit, blocks, tiles, first, end, np.sort(order))[:, 0]
        cost = (sums[:, end] - sums[:, first])[:, 0] + self._ends(unit, first, end)
        return int(np.flatnonzero((cost == column.cost[0]) & (left >= room))[0])

    def _settled(self, part: UnitColumns) -> tuple[Table, Table, Table]:
        """(cost, free, deal) of columns of one unit, one set of blocks and one number of tiles.

        Of equal deals the roomiest, then the first.
        """
        number, blocks = int(part.unit[0]), int(part.blocks[0])
        unit, tiles = self.units[number], int(self.rooms.sizes.runs[part.first[0], part.end[0]])
        order, sums, least = self._deals_of(number, tiles)
        ratio = self._ratio[number, tiles][order]
        floor = least[part.end] - least[part.first]
        best = np.full(len(part), INF)
        room, deal = np.full_like(best, -1), np.full_like(best, HOPEFUL)
        for low in range(0, len(order), DEALS_AT_A_TIME):
            some = order[low : low + DEALS_AT_A_TIME]
            open_ = np.flatnonzero(ratio[low] * floor <= best * (1 + 1e-9))
            if not len(open_):
                break
            first, end = part.first[open_], part.end[open_]
            left = self.rooms.left(unit, blocks, tiles, first, end, some)
            cost = np.where(left >= self.least_free, sums[some][:, end] - sums[some][:, first], INF)
            _improve(best, room, deal, open_, cost, left, some)
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


def _prefix(rows: Table) -> Table:
    """[rows, L + 1]"""
    zero = np.zeros((len(rows), 1), np.int64)
    return np.concatenate([zero, np.cumsum(rows, axis=1)], axis=1)
