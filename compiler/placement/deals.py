"""The deals of one unit in order of promise, and the first that ranks' rooms may allow."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plancc.compiler.placement.problem import Table
from plancc.compiler.placement.relaxation import Floats
from plancc.compiler.placement.shares import ShareSizes, ShareTimes, deal_sizes
from plancc.compiler.placement.unit_columns import Bools
from plancc.compiler.placement.units import Unit

MOST_KEPT_BYTES = 64 * 2**20
MOST_CELLS = 2**18  # of a table over the caps of all ranks; wider groups are searched


@dataclass(frozen=True)
class Deals:
    """Ordered by the least ratio of a deal's layer to the cheapest deal's.

    A deal's run of layers costs at least its ratio times the cheapest, so once a deal fits, those
    far behind it need no look.
    """

    order: Table  # [deals] numbers
    ratio: Floats  # [deals] ascending
    sums: Table  # [deals, L + 1] ns of the layers before, in that order
    least: Table  # [L + 1] the same of every layer's cheapest deal
    sizes: Table  # [deals, ranks] tiles, in that order

    @classmethod
    def of(cls, layers: Table, here: Bools, sizes: Table) -> "Deals":
        """From [deals, L] ns, where only the layers `here` are cut in so many tiles."""
        layers[:, ~here] = 0
        least = layers.min(axis=0)
        ratio = (layers[:, here] / np.maximum(least[here], 1)).min(axis=1)
        order = np.argsort(ratio, kind="stable")
        return cls(order, ratio[order], _prefix(layers[order]), _prefix(least[None, :])[0],
                   sizes[order])  # fmt: skip

    def first_within(self, caps: Table) -> Table:
        """[runs] place of the first deal of at most caps [ranks, runs] tiles; past all if none."""
        if np.prod(self._most + 1, dtype=np.float64) > MOST_CELLS:
            return self._searched(caps)
        place: Table = self._first[tuple(np.minimum(caps, self._most[:, None]))]
        return place

    def _searched(self, caps: Table) -> Table:
        """The same, one deal after another, for each kind of caps once."""
        kinds, index = np.unique(np.minimum(caps, self._most[:, None]), axis=1,
                                 return_inverse=True)  # fmt: skip
        place = np.full(kinds.shape[1], len(self.order), np.int64)
        for kind, cap in enumerate(kinds.T):
            fits = np.flatnonzero((self.sizes <= cap).all(axis=1))
            if len(fits):
                place[kind] = fits[0]
        found: Table = place[index.reshape(-1)]
        return found

    @cached_property
    def _most(self) -> Table:
        """[ranks] the most tiles that a deal gives each rank."""
        most: Table = self.sizes.max(axis=0)
        return most

    @cached_property
    def _first(self) -> Table:
        """[cap, ...] by the cap of each rank."""
        count = len(self.order)
        table = np.full(tuple(self._most + 1), count, np.int64)
        table[tuple(self.sizes.T)] = np.arange(count)
        for axis in range(table.ndim):
            table = np.minimum.accumulate(table, axis=axis)
        return table


class DealTables:
    """Deals by unit and number of tiles, for one step's times; kept while there is room."""

    def __init__(self, times: ShareTimes, units: tuple[Unit, ...]) -> None:
        self.times, self.units = times, units
        self.tiles = ShareSizes(times.problem).tiles
        self._kept: dict[tuple[int, int], Deals] = {}
        self._kept_bytes = 0

    def of(self, number: int, tiles: int) -> Deals:
        key = number, tiles
        if key not in self._kept:
            if self._kept_bytes > MOST_KEPT_BYTES:
                self._kept.clear()
                self._kept_bytes = 0
            unit = self.units[number]
            self._kept[key] = Deals.of(self.times.layers(unit, tiles), self.tiles == tiles,
                                       deal_sizes(unit.size, tiles))  # fmt: skip
            self._kept_bytes += self._kept[key].sums.nbytes
        return self._kept[key]


def _prefix(rows: Table) -> Table:
    """[rows, L + 1]"""
    zero = np.zeros((len(rows), 1), np.int64)
    return np.concatenate([zero, np.cumsum(rows, axis=1)], axis=1)
