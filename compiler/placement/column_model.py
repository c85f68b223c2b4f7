"""The proof's model where few columns are left: a flag a column, and a path through the layers."""

from typing import Any

import numpy as np

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.column_bounds import Kept
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.cpsat import ChainModel, Goal
from plancc.compiler.placement.problem import Table


class ColumnModel(ChainModel):
    """ChainModel over the kept columns alone: every span is a sum of flags."""

    presolve = False  # of flags alone it finds little, and takes most of the time

    def __init__(self, columns: ColumnSet, goal: Goal, kept: Kept) -> None:
        self.kept = kept
        super().__init__(columns, goal)
        self._add_modes()

    def _add_runs(self) -> None:
        """A used seat has one column; what ends at a layer begins there again."""
        any_mode = np.any(list(self.kept.values()), axis=0)
        self.column = {
            seat: {(int(i), int(j)): self._flag() for i, j in np.argwhere(any_mode[seat])}
            for seat in self.seats
        }
        self.used = [self._flag() for _ in self.seats]
        for seat in self.seats:
            self.cp.add(sum(self.column[seat].values()) == self.used[seat])
        every = [run for runs in self.column.values() for run in runs.items()]
        for layer in range(1, self.problem.num_layers):
            begun = [flag for (first, _), flag in every if first == layer]
            ended = [flag for (_, end), flag in every if end == layer]
            if begun or ended:
                self.cp.add(sum(begun) == sum(ended))
        self.cp.add(sum(flag for (first, _), flag in every if first == 0) == 1)
        self.start = [self._layer(seat, 0) for seat in self.seats]
        self.end = [self._layer(seat, 1) for seat in self.seats]

    def _layer(self, seat: int, side: int) -> Any:
        layer = self.cp.new_int_var(0, self.problem.num_layers, "")
        self.cp.add(layer == sum(run[side] * flag for run, flag in self.column[seat].items()))
        return layer

    def _span(self, prefix: Table, seat: int) -> Any:
        return sum(int(prefix[end] - prefix[first]) * flag
                   for (first, end), flag in self.column[seat].items())  # fmt: skip

    def _add_modes(self) -> None:
        """Columns that only one head mode kept."""
        modes = self.problem.head_modes
        if len(modes) == 1:
            return
        chosen = {mode: sum(flag for key, flag in self.ends.items() if key[2] == mode)
                  for mode in modes}  # fmt: skip
        for seat in self.seats:
            for (first, end), flag in self.column[seat].items():
                lacking = [mode for mode in modes if not self.kept[mode][seat, first, end]]
                whole = (first, end) == (0, self.problem.num_layers)
                for mode in lacking if not whole else []:
                    self.cp.add(flag + chosen[mode] <= 1)

    def add_hint(self, shape: Shape) -> None:
        super().add_hint(shape)
        runs = {seat: tuple(shape.cuts[i : i + 2]) for i, seat in enumerate(shape.seats)}
        for seat in self.seats:
            for run, flag in self.column[seat].items():
                self.cp.add_hint(flag, runs.get(seat) == run)
