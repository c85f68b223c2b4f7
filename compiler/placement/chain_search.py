"""The least chains of columns of units, singles and groups alike, by number of devices.

Hopeful columns give a lower bound. What could be in a chain worth a little more than it is settled,
and labels run over what is left; where they find nothing the reach grows, up to what is known to
be possible. Nothing is lost on the way, so the first chain found that is worth less than the reach
is the optimum.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.labels import Forward, Labels
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.relaxation import Leads, Relaxation
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.unit_columns import UnitColumns, joined
from plancc.compiler.placement.unit_hops import UnitHops
from plancc.compiler.placement.unit_rules import UnitRules
from plancc.compiler.placement.unit_source import UnitSource
from plancc.compiler.placement.units import Unit
from plancc.ir.sizes import hidden_row_bytes

FIRST_REACH = 1.02
GROWTH = 2.5
BOUND_ROUNDS, DROP_ROUNDS = 40, 60


@dataclass(frozen=True)
class Step:
    """What is minimised: one step's times on every seat and in every group."""

    columns: ColumnSet
    times: ShareTimes
    units: tuple[Unit, ...]

    @property
    def problem(self) -> Problem:
        return self.columns.problem


class ModeSearch:
    """Chains with the head in one place."""

    def __init__(self, step: Step, mode: str, least_free: int = 0) -> None:
        self.step, self.mode = step, mode
        self.problem = step.problem
        self.source = UnitSource(step.columns, step.times, mode, step.units, least_free)
        rows = step.times.work.rows
        hops = UnitHops(self.problem, step.units, rows * hidden_row_bytes(self.problem.model))
        self.rules = UnitRules(self.problem, step.units, hops, step.columns.back(mode))
        self.columns = self._all_columns()
        self.relaxed = Relaxation(self.columns, step.units, self._leads(), self.problem.num_layers)
        self.relaxed.run(np.inf, BOUND_ROUNDS)
        self.bound = self.relaxed.bound

    def _all_columns(self) -> UnitColumns:
        keys = itertools.product(range(len(self.step.units)), range(self.source.block_sets))
        return joined([self.source.columns_of(number, blocks) for number, blocks in keys])

    def _leads(self) -> Leads:
        hop = self.step.columns.times.hop.astype(np.float64)
        np.fill_diagonal(hop, np.inf)
        back = self.step.columns.back(self.mode).astype(np.float64)
        np.fill_diagonal(back, np.inf)
        return Leads(hop, back.min(axis=1))

    def within(self, most: int) -> UnitColumns:
        """Settled columns that may be in a chain worth at most `most`; leaves prices for labels."""
        self.relaxed.hold(self.columns)
        self.relaxed.run(most, DROP_ROUNDS)
        self.relaxed.hold(self.source.settle(self.relaxed.columns))
        self.relaxed.run(most, DROP_ROUNDS)
        self.bound = max(self.bound, min(self.relaxed.bound, float(most)))
        return self.relaxed.columns

    def chains(self, most: int) -> tuple[UnitColumns, Forward]:
        """Labels of every chain worth at most `most`, and the columns that they speak of."""
        columns = self.within(most)
        return columns, Labels(columns, self.rules, self.relaxed, most).run()


@dataclass(frozen=True)
class Least:
    """The best chain by number of devices; complete up to `reach`. Bound: no chain is worth less.

    `by_stages`: by (devices, 1 for one stage and 2 for more).
    """

    values: dict[int, int]
    by_stages: dict[tuple[int, int], int]
    reach: int
    bound: int


def least_chains(searches: list[ModeSearch], known: int | None, margin: float) -> Least:
    """Every number of devices whose best chain is within the margin of the best of all.

    `known`: a value that is reached anyhow (by a pipeline), if any.
    """
    if all(not len(search.columns) for search in searches):
        return Least({}, {}, known or 0, known or 0)
    low = min(search.bound for search in searches)
    reach = int(low * max(FIRST_REACH, 1 + margin)) + 1
    while True:
        enough = None if known is None else int(known * (1 + margin)) + 1
        reach = reach if enough is None else min(reach, enough)
        by_stages = _values(searches, reach)
        values = _by_devices(by_stages)
        best = min([*values.values(), *([] if known is None else [known])], default=None)
        if best is not None and best <= reach:
            known = best
            enough = int(best * (1 + margin)) + 1
        if enough is not None and reach >= enough:
            bound = min(min(search.bound for search in searches), float(best or 0))
            return Least(values, by_stages, reach, int(np.ceil(bound)))
        grown = int(low * (1 + (reach / low - 1) * GROWTH)) + 1
        reach = grown if enough is None else enough if best is not None and best <= reach else grown


def _values(searches: list[ModeSearch], most: int) -> dict[tuple[int, int], int]:
    values: dict[tuple[int, int], int] = {}
    for search in searches:
        if search.bound <= most:
            for key, value in search.chains(most)[1].least.items():
                values[key] = min(values.get(key, value), value)
    return values


def _by_devices(by_stages: dict[tuple[int, int], int]) -> dict[int, int]:
    values: dict[int, int] = {}
    for (devices, _), value in sorted(by_stages.items()):
        values[devices] = min(values.get(devices, value), value)
    return values
