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
    """By first layer, then unit. `unit` and `blocks` are numbers in the source's lists.

    A group's column is hopeful (`deal` = HOPEFUL) until the cheapest deal that fits it is found:
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


def joined(parts: Sequence[UnitColumns]) -> UnitColumns:
    """All columns of the parts, in order."""
    whole = UnitColumns(*(np.concatenate([getattr(part, entry.name) for part in parts])
                          for entry in fields(UnitColumns)))  # fmt: skip
    return whole.take(np.lexsort((whole.end, whole.blocks, whole.unit, whole.first)))
