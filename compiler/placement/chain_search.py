"""The least chains of columns of units, singles and groups alike, by number of devices.

Hopeful columns give a lower bound. What could be in a chain worth a little more than it is settled,
and labels run over what is left; where they find nothing the reach grows a little. Nothing is lost
on the way, so the first chain found within the reach is the optimum.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.deals import DealTables
from plancc.compiler.placement.labels import Forward, Kind, Labels
from plancc.compiler.placement.margin import within_margin
from plancc.compiler.placement.problem import INF, Problem
from plancc.compiler.placement.relaxation import Leads, Relaxation
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.unit_columns import HOPEFUL, UnitColumns, joined
from plancc.compiler.placement.unit_hops import UnitHops
from plancc.compiler.placement.unit_rules import UnitRules
from plancc.compiler.placement.unit_source import UnitSource
from plancc.compiler.placement.units import Unit
from plancc.ir.sizes import hidden_row_bytes

NEAR = 1.006  # of the bound: how far above it chains are sought next
FAR = 1.05  # of the bound: columns beyond are not looked at while it is raised
MOST_RAISES = 6  # each by FAR at most
FIRST_ROUNDS, BOUND_ROUNDS, DROP_ROUNDS = 10, 40, 40


@dataclass(frozen=True)
class Step:
    """What is minimised: one step's times on every seat and in every group."""

    columns: ColumnSet
    times: ShareTimes
    units: tuple[Unit, ...]

    @property
    def problem(self) -> Problem:
        return self.columns.problem

    @cached_property
    def hops(self) -> UnitHops:
        rows = self.times.work.rows
        return UnitHops(self.problem, self.units, rows * hidden_row_bytes(self.problem.model))


class ModeSearch:
    """Chains with the head in one place."""

    def __init__(self, step: Step, source: UnitSource, parts: Sequence[UnitColumns]) -> None:
        self.step, self.mode, self.problem, self.source = step, source.mode, step.problem, source
        self.rules = UnitRules(self.problem, step.units, step.hops, step.columns.back(self.mode))
        self.columns = joined(parts, self.rules.lead)
        self.relaxed, self.bound = Relaxation(self.columns, self.rules, self._leads), -np.inf
        self.raise_bound()

    @cached_property
    def _leads(self) -> Leads:
        hop = self.step.columns.times.hop.astype(np.float64)
        np.fill_diagonal(hop, np.inf)
        back = self.step.columns.back(self.mode).astype(np.float64)
        np.fill_diagonal(back, np.inf)
        return Leads(hop, back.min(axis=1))

    def raise_bound(self) -> None:
        """The bound of all columns as they are known by now; most of them soon do not matter."""
        for _ in range(MOST_RAISES):
            self.relaxed.hold(self.columns)
            self.relaxed.run(np.inf, FIRST_ROUNDS)
            most = max(self.bound, self.relaxed.bound) * FAR
            self.relaxed.run(most, BOUND_ROUNDS)
            self.bound = max(self.bound, min(self.relaxed.bound, most))
            if self.relaxed.bound < most or not np.isfinite(most):
                return

    def settle(self, most: int) -> None:
        """Settle what may be in a chain worth at most `most`, until the bound is one of such."""
        while True:
            relaxed = self._narrowed(most, None)
            hopeful = int((relaxed.columns.deal <= HOPEFUL).sum())
            self._remember(relaxed)
            if not hopeful:
                return

    def chains(self, most: int, most_devices: int | None = None) -> tuple[UnitColumns, Forward]:
        """Labels of every chain worth at most `most`, and the columns that they speak of."""
        relaxed = self._narrowed(most, most_devices)
        self._remember(relaxed)
        relaxed.run(most, DROP_ROUNDS)
        columns = relaxed.columns
        return columns, Labels(columns, self.rules, relaxed, most, most_devices).run()

    def _narrowed(self, most: int, most_devices: int | None) -> Relaxation:
        """The columns that may be in a chain worth at most `most`."""
        relaxed = Relaxation(self.columns, self.rules, self._leads, most_devices)
        relaxed.prices = self.relaxed.prices
        relaxed.run(most, DROP_ROUNDS)
        return relaxed

    def _remember(self, relaxed: Relaxation) -> None:
        """Settle the columns in hand. What was settled stays so; what does not fit goes."""
        settled, index = self.source.settle(relaxed.columns), relaxed.index
        relaxed.hold(settled.take(settled.cost < INF))
        for known, found in ((self.columns.cost, settled.cost), (self.columns.free, settled.free),
                             (self.columns.deal, settled.deal)):  # fmt: skip
            known[index] = found
        fits = self.columns.cost < INF
        if not fits.all():
            self.columns = self.columns.take(fits)


def mode_searches(step: Step) -> list[ModeSearch]:
    """One for each place of the head; units one by one, as their tables serve every place."""
    deals = DealTables(step.times, step.units)
    sources = [UnitSource(step.columns, deals, mode) for mode in step.problem.head_modes]
    parts: list[list[UnitColumns]] = [[] for _ in sources]
    for key in itertools.product(range(len(step.units)), range(sources[0].block_sets)):
        known = None
        for source, columns in zip(sources, parts, strict=True):
            known = source.columns_of(*key, known)
            columns.append(known)
    return [ModeSearch(step, *pair) for pair in zip(sources, parts, strict=True)]


Values = dict[Kind, int]


@dataclass(frozen=True)
class Least:
    """The best values by kind: of all, and of fewer devices where that is within the margin.

    No chain worth at most `reach` was missed.
    """

    values: Values
    reach: int

    def by_devices(self, *, has_group: bool) -> dict[int, int]:
        """devices -> the best value, of chains with or without a group."""
        best: dict[int, int] = {}
        for (devices, grouped, _), value in sorted(self.values.items()):
            if grouped == has_group:
                best[devices] = min(best.get(devices, value), value)
        return best


def least_chains(searches: list[ModeSearch], known: int | None) -> Least:
    """`known`: a value that is reached anyhow (by a pipeline), if any."""
    values, reach = _least(searches, known)
    if not values and known is None:
        return Least({}, reach)
    best = min([*values.values(), *([] if known is None else [known])])
    most = within_margin(searches[0].problem, best)
    devices = min((kind[0] for kind, value in values.items() if value == best), default=None)
    if devices is None or devices > 1:
        fewer = _values(searches, most, None if devices is None else devices - 1)
        values = _merged(values, fewer)
    return Least(values, reach)


def _least(searches: list[ModeSearch], known: int | None) -> tuple[Values, int]:
    """Best values up to a reach, the first at which there are any, and the reach."""
    while True:
        low = min(search.bound for search in searches)
        if not np.isfinite(low):
            return {}, known or 0
        far = _reach(low, FAR, known)
        for search in searches:
            if search.bound <= far:
                search.settle(far)
                search.raise_bound()
        reach = _reach(min(search.bound for search in searches), NEAR, known)
        found = _values(searches, reach)
        if found or reach == known:
            return found, reach
        for search in searches:
            search.bound = max(search.bound, float(reach + 1))


def _reach(bound: float, factor: float, known: int | None) -> int:
    if not np.isfinite(bound):
        return known or 0
    reach = int(bound * factor) + 1
    return reach if known is None else min(reach, known)


def _values(searches: list[ModeSearch], most: int, most_devices: int | None = None) -> Values:
    values: Values = {}
    for search in searches:
        if search.bound <= most:
            values = _merged(values, search.chains(most, most_devices)[1].least)
    return values


def _merged(one: Values, two: Values) -> Values:
    kinds = sorted({*one, *two})
    return {kind: min(part[kind] for part in (one, two) if kind in part) for kind in kinds}
