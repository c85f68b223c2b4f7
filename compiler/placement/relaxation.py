"""A lower bound of every chain of columns, and the columns that no chain as good as asked can use.

A Lagrangian relaxation: a seat may be used again, at a price for each use; all prices are paid back
once. The shortest path over (layer, lead) is then a lower bound whatever the prices, and a column
through which even the shortest path costs more than `most` is in no chain worth `most`. Prices
follow the subgradient (uses - 1), with Polyak's step. Where at most so many devices may be used
their number has a price of its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.problem import Table
from plancc.compiler.placement.unit_columns import UnitColumns
from plancc.compiler.placement.unit_rules import UnitRules

Floats = NDArray[np.float64]
SLACK_NS = 1.0  # more than float64 can err by in a sum of a few ns counts below 2^50
STALE_ROUNDS = 5
LEAST_STEP = 1 / 16
LEAST_GAIN = 1e-4  # a bound that rises by less is stale


@dataclass(frozen=True)
class Leads:
    """What the relaxation sees of hops: lead to lead; the last lead to the nearest first."""

    hop: Floats  # [seats, seats]
    home: Floats  # [seats]


@dataclass(frozen=True)
class Prices:
    """ns for a use of each seat, and of any seat beyond the most devices."""

    seats: Floats
    device: float = 0.0


class Relaxation:
    """Columns in hand, the best prices so far, the bound that they give.

    Columns lie in order of (first, lead, end); those alike in all three are a *bundle*, of which
    only the cheapest matters to a shortest path.
    """

    def __init__(self, columns: UnitColumns, rules: UnitRules, leads: Leads,
                 most_devices: int | None = None) -> None:  # fmt: skip
        self.leads, self.most_devices = leads, most_devices
        self.num_layers, self.num_seats = rules.problem.num_layers, rules.problem.num_seats
        self.uses, self.unit_lead = rules.uses, rules.lead
        self.prices = Prices(np.zeros(self.num_seats))
        self.bound = -np.inf
        self.hold(columns)

    def hold(self, columns: UnitColumns, index: Table | None = None) -> None:
        """Go on with these columns, at the prices found so far; `index`: where they come from."""
        self.columns = columns
        self.index = np.arange(len(columns)) if index is None else index
        self.cost = columns.cost.astype(np.float64)
        lead = self.unit_lead[columns.unit]
        key = (columns.first * self.num_seats + lead) * (self.num_layers + 1) + columns.end
        self.begins = np.flatnonzero(np.diff(key, prepend=-1))  # of bundles
        self.bundle = np.repeat(np.arange(len(self.begins)),
                                np.diff(self.begins, append=len(key)))  # fmt: skip
        self.first, self.end = columns.first[self.begins], columns.end[self.begins]
        self.lead = lead[self.begins]
        layers = np.arange(self.num_layers + 1)
        self.starts = np.searchsorted(self.first, layers).tolist()
        by_lead = self.first * self.num_seats + self.lead
        self.lead_begins = np.flatnonzero(np.diff(by_lead, prepend=-1))  # in bundles
        self.lead_starts = np.searchsorted(self.first[self.lead_begins], layers).tolist()

    def run(self, most: float, rounds: int) -> None:
        """Raise the bound and drop columns; ends early where nothing more is to be had."""
        step, stale, best, self.bound = 1.0, 0, self.prices, -np.inf
        for _ in range(rounds):
            if not len(self.columns):
                self.bound = np.inf
                break
            paid, cheapest = self._paid()
            ahead = self._ahead(cheapest)
            bound = self._bound(ahead, cheapest)
            stale = 0 if bound > self.bound + LEAST_GAIN * abs(self.bound) else stale + 1
            if bound > self.bound:
                self.bound, best = bound, self.prices
                if self._drop(ahead, paid, cheapest, most):
                    continue
            if stale >= STALE_ROUNDS:
                step, stale = step / 2, 0
                if step < LEAST_STEP:
                    break
            if not self._follow(ahead, paid, cheapest, step * (self._aim(most) - bound)):
                break
        self.prices = best

    def _aim(self, most: float) -> float:
        """What Polyak's step takes for the optimum."""
        return min(most, self.bound * 1.02) + SLACK_NS

    def owed(self) -> float:
        """All prices, paid back once."""
        return float(self.prices.seats.sum()) + self.prices.device * (self.most_devices or 0)

    def unit_prices(self) -> Floats:
        """[units] what a use of each unit costs beside its column."""
        return self.uses @ (self.prices.seats + self.prices.device)

    def ahead(self) -> Floats:
        """[L + 1, seats] least cost of what follows a stage led by a seat that ends at a layer."""
        return self._ahead(self._paid()[1])

    def _paid(self) -> tuple[Floats, Floats]:
        """([columns], [bundles] the least of each) with prices."""
        paid = self.cost + self.unit_prices()[self.columns.unit]
        if not len(paid):
            return paid, paid
        return paid, np.minimum.reduceat(paid, self.begins)

    def _ahead(self, cheapest: Floats) -> Floats:
        last = self.num_layers
        ahead = np.full((last + 1, self.num_seats), np.inf)
        ahead[last] = self.leads.home
        for layer in range(last - 1, 0, -1):
            here = slice(self.starts[layer], self.starts[layer + 1])
            if here.start < here.stop:
                total = cheapest[here] + ahead[self.end[here], self.lead[here]]
                ahead[layer] = (self.leads.hop + self._by_lead(layer, total)).min(axis=1)
        return ahead

    def _by_lead(self, layer: int, total: Floats) -> Floats:
        """[seats] the least of a layer's bundles of each lead."""
        begins = self.lead_begins[self.lead_starts[layer] : self.lead_starts[layer + 1]]
        least = np.full(self.num_seats, np.inf)
        least[self.lead[begins]] = np.minimum.reduceat(total, begins - self.starts[layer])
        return least

    def _from_start(self, ahead: Floats, cheapest: Floats) -> Floats:
        """What a chain costs that begins with each of the first bundles; whole ones go nowhere."""
        here = slice(0, self.starts[1])
        after = ahead[self.end[here], self.lead[here]]
        return cheapest[here] + np.where(self.end[here] == self.num_layers, 0.0, after)

    def _bound(self, ahead: Floats, cheapest: Floats) -> float:
        total = self._from_start(ahead, cheapest)
        return float(total.min()) - self.owed() if len(total) else np.inf

    def _drop(self, ahead: Floats, paid: Floats, cheapest: Floats, most: float) -> bool:
        """Take away columns whose shortest chain is dearer than `most`; whether any went."""
        behind = self._behind(cheapest)[self.first, self.lead]
        is_whole = (self.first == 0) & (self.end == self.num_layers)
        after = np.where(is_whole, 0.0, ahead[self.end, self.lead])
        keep = paid + (behind + after)[self.bundle] <= most + SLACK_NS + self.owed()
        if keep.all():
            return False
        self.hold(self.columns.take(keep), self.index[keep])
        return True

    def _behind(self, cheapest: Floats) -> Floats:
        """[L + 1, seats] least cost of all before a stage led by a seat that begins at a layer."""
        last = self.num_layers
        behind = np.full((last + 1, self.num_seats), np.inf)
        behind[0] = 0.0
        ended = np.full((last + 1, self.num_seats), np.inf)
        for layer in range(last):
            here = slice(self.starts[layer], self.starts[layer + 1])
            if layer:
                behind[layer] = (ended[layer][:, None] + self.leads.hop).min(axis=0)
            ends = self.end[here], self.lead[here]  # each pair once
            ended[ends] = np.minimum(ended[ends], cheapest[here] + behind[layer][self.lead[here]])
        return behind

    def _follow(self, ahead: Floats, paid: Floats, cheapest: Floats, reach: float) -> bool:
        """Move the prices by the shortest path's uses; False where it is a chain already."""
        uses = self._path_uses(ahead, paid, cheapest)
        slope = uses - 1.0
        slope[(slope < 0) & (self.prices.seats <= 0)] = 0.0
        over = 0.0 if self.most_devices is None else float(uses.sum()) - self.most_devices
        if over < 0 and self.prices.device <= 0:
            over = 0.0
        length = float((slope**2).sum()) + over**2
        if length == 0:
            return False
        self.prices = Prices(np.maximum(0.0, self.prices.seats + reach / length * slope),
                             max(0.0, self.prices.device + reach / length * over))  # fmt: skip
        return True

    def _path_uses(self, ahead: Floats, paid: Floats, cheapest: Floats) -> Floats:
        uses = np.zeros(self.num_seats)
        if not self.starts[1]:
            return uses
        bundle = int(self._from_start(ahead, cheapest).argmin())
        while True:
            uses += self.uses[self._cheapest_of(bundle, paid)]
            end, lead = int(self.end[bundle]), int(self.lead[bundle])
            if end == self.num_layers:
                return uses
            here = slice(self.starts[end], self.starts[end + 1])
            total = cheapest[here] + ahead[self.end[here], self.lead[here]]
            total += self.leads.hop[lead, self.lead[here]]
            if not len(total) or not np.isfinite(total.min()):
                return uses
            bundle = here.start + int(total.argmin())

    def _cheapest_of(self, bundle: int, paid: Floats) -> int:
        """The unit of a bundle's cheapest column."""
        begin = self.begins[bundle]
        stop = self.begins[bundle + 1] if bundle + 1 < len(self.begins) else len(paid)
        return int(self.columns.unit[begin + int(paid[begin:stop].argmin())])
