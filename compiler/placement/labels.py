"""Exact chains of columns, layer by layer.

A label is a state (seats and blocks used, unit that holds the rows, lead of the first stage) with
the least cost of reaching it. Labels that even the relaxation cannot complete within `most` go;
with good prices few are left, however many seats there are. Integer arithmetic throughout.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plancc.compiler.placement.problem import Table
from plancc.compiler.placement.relaxation import SLACK_NS, Relaxation
from plancc.compiler.placement.unit_columns import Bools, UnitColumns
from plancc.compiler.placement.unit_rules import GROUPED, UnitRules

MOST_PAIRS = 1 << 20  # labels x columns at a time
WHOLE = -1


Kind = tuple[int, bool, bool]
"""(devices, has a group, has several stages): what the best value is noted by."""


class States(NamedTuple):
    """Arrays of one length. `unit` and `lead` are -1 before the first stage."""

    used: Table  # bits of seats, of blocks, and GROUPED
    unit: Table  # that holds the rows
    lead: Table  # seat of the first stage's lead
    cost: Table


@dataclass
class Steps:
    """Transitions: from a label by a column to a label, or to a whole chain."""

    source: Table
    column: Table
    cost: Table  # of hop, column, and way back
    target: Table


@dataclass
class Forward:
    """What a pass found. Labels are numbered through all layers."""

    least: dict[Kind, int] = field(default_factory=dict)
    layers: list[States] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    num_labels: int = 0


class Labels:
    """A forward pass over settled columns."""

    def __init__(self, columns: UnitColumns, rules: UnitRules, relaxed: Relaxation, most: int,
                 most_devices: int | None = None) -> None:  # fmt: skip
        self.columns, self.rules, self.most = columns, rules, most
        self.most_devices = most_devices
        self.num_layers = rules.problem.num_layers
        self.ahead, self.owed = relaxed.ahead(), relaxed.owed()
        self.prices = relaxed.prices.seats + relaxed.prices.device
        self.starts = np.searchsorted(columns.first, np.arange(self.num_layers + 1))
        self.bits = rules.bits[columns.unit] | columns.blocks << rules.problem.num_seats
        self.leaves = self.bits | rules.grouped[columns.unit]
        self.lead = rules.lead[columns.unit]
        self.price = rules.prices_of(self.bits, self.prices)
        self.waiting: list[list[tuple[States, Steps, Table]]] = [[] for _ in range(self.num_layers)]

    def run(self) -> Forward:
        found = Forward()
        nothing = np.zeros(1, np.int64)
        states = States(nothing, nothing - 1, nothing - 1, nothing)
        for layer in range(self.num_layers):
            if layer:
                states = self._arrived(layer, found)
            if len(states.used):
                self._extend(layer, states, found)
            found.layers.append(states)
            found.num_labels += len(states.used)
        return found

    def _arrived(self, layer: int, found: Forward) -> States:
        """The labels of a layer, each state once, and their numbers to the steps that led there."""
        parts = self.waiting[layer]
        if not parts:
            return States(*(np.zeros(0, np.int64) for _ in States._fields))
        joined = States(*(np.concatenate(arrays) for arrays in
                          zip(*(states for states, _, _ in parts), strict=True)))  # fmt: skip
        key = np.stack(joined[:3], axis=1)
        order = np.lexsort((joined.cost, *key.T[::-1]))
        key = key[order]
        is_new = np.concatenate([[True], (key[1:] != key[:-1]).any(axis=1)])
        number = np.empty(len(order), np.int64)
        number[order] = np.cumsum(is_new) - 1 + found.num_labels
        offset = 0
        for _, steps, places in parts:
            steps.target[places] = number[offset : offset + len(places)]
            offset += len(places)
        self.waiting[layer] = []
        return States(*(array[order][is_new] for array in joined))

    def _extend(self, layer: int, states: States, found: Forward) -> None:
        here = np.arange(self.starts[layer], self.starts[layer + 1])
        if not len(here):
            return
        paid = states.cost + self.rules.prices_of(states.used, self.prices)
        size = max(1, MOST_PAIRS // len(here))
        for low in range(0, len(states.used), size):
            part = States(*(array[low : low + size] for array in states))
            self._extend_part(here, part, paid[low : low + size], found.num_labels + low, found)

    def _extend_part(
        self, here: Table, states: States, paid: NDArray[np.float64], number: int, found: Forward
    ) -> None:
        rules, columns = self.rules, self.columns
        hop = rules.hops_to(states.unit, columns.unit[here])
        end, lead = columns.end[here], self.lead[here]
        rest = columns.cost[here] + self.price[here] + self.ahead[end, lead] - self.owed
        if states.unit[0] < 0:  # a stage that is all has no way back
            rest[end == self.num_layers] -= self.ahead[self.num_layers][
                lead[end == self.num_layers]]  # fmt: skip
        good = paid[:, None] + hop + rest[None, :] <= self.most + SLACK_NS
        good &= rules.may_follow(states.used, columns.unit[here], self.bits[here])
        rows, picks = np.nonzero(good)
        if len(rows):
            cost = hop[rows, picks] + columns.cost[here[picks]]
            self._step(states, rows, here[picks], cost, number, found)

    def _step(
        self, states: States, rows: Table, column: Table, cost: Table, number: int, found: Forward
    ) -> None:
        is_last = self.columns.end[column] == self.num_layers
        first = np.where(states.lead[rows] < 0, self.lead[column], states.lead[rows])
        after = States(
            states.used[rows] | self.leaves[column], self.columns.unit[column], first,
            states.cost[rows] + cost,
        )  # fmt: skip
        home = np.where(is_last & (states.unit[rows] >= 0),
                        self.rules.back[self.lead[column], first], 0)  # fmt: skip
        keep = ~is_last | self._ends_well(after, home)
        steps = Steps(rows[keep] + number, column[keep], (cost + home)[keep],
                      np.full(int(keep.sum()), WHOLE, np.int64))  # fmt: skip
        found.steps.append(steps)
        after, is_last, home = States(*(a[keep] for a in after)), is_last[keep], home[keep]
        self._note(after, home, is_last, states.unit[rows[keep]] >= 0, found)
        end = self.columns.end[steps.column]
        for layer in np.unique(end[~is_last]).tolist():
            places = np.flatnonzero(end == layer)
            self.waiting[layer].append((States(*(a[places] for a in after)), steps, places))

    def _ends_well(self, after: States, home: Table) -> Bools:
        """Whole chains have placed every block, and are worth at most `most`."""
        placed = (after.used & ~GROUPED) >> self.rules.problem.num_seats == self.rules.all_blocks
        within = self.rules.allows_count(after.used, self.most_devices)
        within &= after.cost + home <= self.most
        return np.asarray(placed & within)

    def _note(self, after: States, home: Table, is_last: Bools, has_more: Bools,
              found: Forward) -> None:  # fmt: skip
        used, total = after.used[is_last], (after.cost + home)[is_last]
        kinds = zip(self.rules.num_devices(used).tolist(), (used & GROUPED != 0).tolist(),
                    has_more[is_last].tolist(), strict=True)  # fmt: skip
        for kind, value in zip(kinds, total.tolist(), strict=True):
            found.least[kind] = min(found.least.get(kind, value), value)
