"""Columns of units: (unit, blocks, first, end) with what a stage there costs, as flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.problem import Table

Bools = NDArray[np.bool_]
HOPEFUL = -1


@dataclass(frozen=True)
class UnitColumns:
    """By (first, lead, end, unit). `unit` and `blocks` are numbers in the source's lists.

    A group's column is hopeful (`deal` <= HOPEFUL) until the cheapest deal that fits it is found:
    its cost is a lower bound, and it may not fit.
    """

    unit: Table
    blocks: Table
    first: Table
    end: Table
    cost: Table
    free: Table  # what the tightest rank has left, with that deal
    deal: Table

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, keep: Table | Bools) -> "UnitColumns":
        return UnitColumns(*(getattr(self, entry.name)[keep] for entry in fields(self)))


def appended(one: UnitColumns, two: UnitColumns) -> UnitColumns:
    return UnitColumns(*(np.concatenate([getattr(one, entry.name), getattr(two, entry.name)])
                         for entry in fields(UnitColumns)))  # fmt: skip


def joined(parts: Sequence[UnitColumns], lead: Table) -> UnitColumns:
    """All columns of the parts by (first, lead, end, unit); `lead` is by unit."""
    whole = UnitColumns(*(np.concatenate([getattr(part, entry.name) for part in parts])
                          for entry in fields(UnitColumns)))  # fmt: skip
    layers, leads = int(whole.end.max(initial=0)) + 1, int(lead.max(initial=0)) + 1
    key = (whole.first * leads + lead[whole.unit]) * layers + whole.end
    return whole.take(np.argsort(key, kind="stable"))
