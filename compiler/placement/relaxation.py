"""A lower bound of every chain of columns, and the columns that no chain as good as asked can use.

A Lagrangian relaxation: a seat may be used again, at a price for each use; all prices are paid back
once. The shortest path over (layer, lead) is then a lower bound whatever the prices, and a column
through which even the shortest path costs more than `most` is in no chain worth `most`. Prices
follow the subgradient (uses - 1), with Polyak's step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.unit_columns import UnitColumns
from plancc.compiler.placement.units import Unit

Floats = NDArray[np.float64]
SLACK_NS = 1.0  # more than float64 can err by in a sum of a few ns counts below 2^50
STALE_ROUNDS = 6
REST = 1e-4  # a step that raises the bound by less is not worth the next


@dataclass(frozen=True)
class Leads:
    """What the relaxation sees of hops: lead to lead; the last lead to the nearest first."""

    hop: Floats  # [seats, seats]
    home: Floats  # [seats]


class Relaxation:
    """Columns in hand, the best prices so far, the bound that they give."""

    def __init__(self, columns: UnitColumns, units: tuple[Unit, ...], leads: Leads,
                 num_layers: int) -> None:  # fmt: skip
        self.units, self.leads, self.num_layers = units, leads, num_layers
        self.num_seats = len(leads.home)
        self.uses = np.array([[unit.mask >> s & 1 for s in range(self.num_seats)]
                              for unit in units], np.float64)  # fmt: skip
        self.unit_lead = np.array([unit.lead for unit in units], np.int64)
        self.prices: Floats = np.zeros(self.num_seats)
        self.bound = -np.inf
        self.hold(columns)

    def hold(self, columns: UnitColumns) -> None:
        """Go on with these columns, at the prices found so far."""
        self.columns = columns
        self.cost = columns.cost.astype(np.float64)
        self.lead = self.unit_lead[columns.unit]
        self.starts = np.searchsorted(columns.first, np.arange(self.num_layers + 1))
        self.is_whole = (columns.first == 0) & (columns.end == self.num_layers)

    def run(self, most: float, rounds: int) -> None:
        """Raise the bound and drop columns; ends early where nothing more is to be had."""
        step, stale, best_prices, self.bound = 1.0, 0, self.prices, -np.inf
        for _ in range(rounds):
            if not len(self.columns):
                self.bound = np.inf
                return
            ahead, paid = self.ahead(self.prices)
            bound = self._bound(ahead, paid)
            if bound > self.bound + REST * abs(self.bound):
                stale = 0
            else:
                stale += 1
            if bound > self.bound:
                self.bound, best_prices = bound, self.prices
                self._drop(ahead, paid, most)
                ahead, paid = self.ahead(self.prices)
            if stale >= STALE_ROUNDS:
                step, stale = step / 2, 0
                if step < 1 / 16:
                    break
            if not self._follow(ahead, paid, step * (self._aim(most) - bound)):
                break
        self.prices = best_prices

    def _aim(self, most: float) -> float:
        """What Polyak's step takes for the optimum."""
        return min(most, self.bound * 1.02 + SLACK_NS) + SLACK_NS

    def _slice(self, layer: int) -> slice:
        return slice(self.starts[layer], self.starts[layer + 1])

    def paid(self, prices: Floats) -> Floats:
        return self.cost + (self.uses @ prices)[self.columns.unit]

    def ahead(self, prices: Floats) -> tuple[Floats, Floats]:
        """[L + 1, seats] least cost of what follows a stage led by a seat that ends at a layer."""
        paid, last = self.paid(prices), self.num_layers
        ahead = np.full((last + 1, self.num_seats), np.inf)
        ahead[last] = self.leads.home
        for layer in range(last - 1, 0, -1):
            here = self._slice(layer)
            if here.start == here.stop:
                continue
            total = paid[here] + ahead[self.columns.end[here], self.lead[here]]
            stage = np.full(self.num_seats, np.inf)
            np.minimum.at(stage, self.lead[here], total)
            ahead[layer] = (self.leads.hop + stage[None, :]).min(axis=1)
        return ahead, paid

    def _through_first(self, ahead: Floats, paid: Floats) -> Floats:
        """What a chain costs that begins with each of the first columns."""
        here = self._slice(0)
        after = ahead[self.columns.end[here], self.lead[here]]
        return paid[here] + np.where(self.is_whole[here], 0.0, after)

    def _bound(self, ahead: Floats, paid: Floats) -> float:
        total = self._through_first(ahead, paid)
        owed = float(self.prices.sum())
        return float(total.min()) - owed if len(total) else np.inf

    def _drop(self, ahead: Floats, paid: Floats, most: float) -> None:
        """Take away columns whose shortest chain is dearer than `most`."""
        columns, last = self.columns, self.num_layers
        behind = np.full((last + 1, self.num_seats), np.inf)
        behind[0] = 0.0
        ended = np.full((last + 1, self.num_seats), np.inf)
        for layer in range(last):
            here = self._slice(layer)
            if here.start == here.stop:
                continue
            if layer:
                behind[layer] = (ended[layer][:, None] + self.leads.hop).min(axis=0)
            total = paid[here] + behind[layer][self.lead[here]]
            np.minimum.at(ended, (columns.end[here], self.lead[here]), total)
        after = np.where(self.is_whole, 0.0, ahead[columns.end, self.lead])
        through = behind[columns.first, self.lead] + paid + after - self.prices.sum()
        keep = through <= most + SLACK_NS
        if not keep.all():
            self.hold(columns.take(keep))

    def _follow(self, ahead: Floats, paid: Floats, reach: float) -> bool:
        """Move the prices by the shortest path's uses; False where it is a chain already."""
        slope = self._path_uses(ahead, paid) - 1.0
        slope[(slope < 0) & (self.prices <= 0)] = 0.0
        length = float((slope**2).sum())
        if length == 0:
            return False
        self.prices = np.maximum(0.0, self.prices + reach / length * slope)
        return True

    def _path_uses(self, ahead: Floats, paid: Floats) -> Floats:
        uses = np.zeros(self.num_seats)
        if self.starts[1] == 0:
            return uses + 1.0
        column = int(self._through_first(ahead, paid).argmin())
        while True:
            uses += self.uses[self.columns.unit[column]]
            end, lead = int(self.columns.end[column]), int(self.lead[column])
            if end == self.num_layers:
                return uses
            here = self._slice(end)
            total = paid[here] + ahead[self.columns.end[here], self.lead[here]]
            total += self.leads.hop[lead, self.lead[here]]
            if not len(total) or not np.isfinite(total.min()):
                return uses
            column = here.start + int(total.argmin())
