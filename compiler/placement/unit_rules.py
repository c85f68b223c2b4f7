"""What may follow what: bits of units, the order of seats, hops and ways back, as arrays."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.unit_columns import Bools
from plancc.compiler.placement.unit_hops import UnitHops
from plancc.compiler.placement.units import Unit, seats_before

GROUPED = 1 << 62
"""The bit of a label's set that says: a TP group is in the chain."""


class UnitRules:
    """For one list of units and one step: numbers in arrays are units' places in the list."""

    def __init__(self, problem: Problem, units: tuple[Unit, ...], hops: UnitHops, back: Table):
        self.problem, self.units, self.back = problem, units, back
        self.hop = hops.table
        self.bits = np.array([unit.mask for unit in units], np.int64)
        self.lead = np.array([unit.lead for unit in units], np.int64)
        self.grouped = np.array([GROUPED * (unit.size > 1) for unit in units], np.int64)
        self.all_blocks = (1 << len(problem.free_blocks)) - 1

    @cached_property
    def uses(self) -> NDArray[np.float64]:
        """[units, seats] 1 where a unit has the seat."""
        seats = np.arange(self.problem.num_seats)
        return (self.bits[:, None] >> seats[None, :] & 1).astype(np.float64)

    @cached_property
    def _before(self) -> Table:
        """[units] seats that must be used before."""
        return np.array([seats_before(self.problem, unit) for unit in self.units], np.int64)

    @cached_property
    def _lowest(self) -> Table:
        return np.array([min(unit.seats) for unit in self.units], np.int64)

    def may_follow(self, used: Table, unit: Table, bits: Table) -> Bools:
        """[labels, columns] no seat or block twice, equals by name, the asked order kept."""
        before = self._before[unit]
        good: Bools = (used[:, None] & bits[None, :]) == 0
        good &= (used[:, None] & before[None, :]) == before[None, :]
        if self.problem.in_order:
            seats = used & (1 << self.problem.num_seats) - 1
            good &= seats[:, None] >> self._lowest[unit][None, :] == 0
        return good

    def hops_to(self, source: Table, target: Table) -> Table:
        """[labels, columns] ns; 0 into the first stage."""
        hop = self.hop[source[:, None], target[None, :]]
        return np.where(source[:, None] < 0, 0, hop)

    def prices_of(self, used: Table, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros(len(used))
        for seat, price in enumerate(prices.tolist()):
            total += price * (used >> seat & 1)
        return total

    def num_devices(self, used: Table) -> Table:
        return sum((used >> seat & 1 for seat in range(self.problem.num_seats)),
                   np.zeros(len(used), np.int64))  # fmt: skip

    def allows_count(self, used: Table, most: int | None) -> Bools:
        """So many devices at most, by the ask too."""
        limits = [limit for limit in (most, self.problem.ask.max_devices) if limit is not None]
        most, count = min(limits, default=None), self.num_devices(used)
        allowed = np.ones(len(used), bool) if most is None else count <= most
        return allowed & (count == self.problem.num_seats) if self.problem.all_seats else allowed
