"""The least mix of two costs over chains of n stages: the worst prefill part, the decode round.

value = beats x worst prefill + tokens x max(in_flight x worst decode, decode sum). The terms pull
cuts and orders different ways, so no one of them decides. A box holds the chains whose worst
prefill part is in one range, and whose worst decode part in another. In it no chain is worth less
than

    beats x least prefill + tokens x max(in_flight x least decode, S)

where S, from one subset DP, is the least decode sum of chains that pass neither upper end. Boxes
are split, the most promising first, until none can hold a better chain, nor one more as good.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count as counter

import numpy as np

from plancc.compiler.placement.chain_choice import Target, choose
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.paths import Chains, Limits, Start
from plancc.compiler.placement.problem import INF, Table
from plancc.compiler.placement.two_costs import costs_of, limited, parts_of


@dataclass(frozen=True)
class Weights:
    """Of chains of `num_stages`, with the terms of the value above."""

    num_stages: int
    beats: int
    tokens: int
    in_flight: int

    def value(self, beat: int, worst: int, total: int) -> int:
        return self.beats * beat + self.tokens * self.turn(worst, total)

    def turn(self, worst: int, total: int) -> int:
        """One in flight: the sum, which is more than any part of it."""
        return max(self.in_flight * worst, total) if self.in_flight > 1 else total


@dataclass(frozen=True)
class Floor:
    """Of any chain: the least worst parts of prefill and decode, and the least sum by start."""

    beat: int
    worst: int
    totals: dict[Start, int]


@dataclass(frozen=True)
class Way:
    """Chains of one worst prefill part that reach the least value: a choice is made among them."""

    columns: ColumnSet
    starts: tuple[Start, ...]
    target: Target


@dataclass(frozen=True)
class Box:
    """Ranges of worst parts, as places in the sorted costs, and S for each first seat.

    Where `is_exact` S is of just this box, else of a wider one: a bound from below.
    """

    beat: tuple[int, int]
    worst: tuple[int, int]
    totals: dict[Start, int]
    is_exact: bool


class Mix:
    """A search for one number of stages; prefill and decode columns are of the same stages."""

    def __init__(
        self, prefill: ColumnSet, decode: ColumnSet, weights: Weights, floor: Floor
    ) -> None:
        self.prefill, self.decode, self.weights = prefill, decode, weights
        self.beats, self.worsts = costs_of(prefill), costs_of(decode)
        self.root = Box(
            (_place(self.beats, floor.beat), len(self.beats) - 1),
            (_place(self.worsts, floor.worst), len(self.worsts) - 1),
            {start: total for start, total in floor.totals.items() if total < INF},
            is_exact=True,
        )
        self.known = self.best = self._worth_of_a_chain(self.root)

    def least(self, below: int) -> tuple[int, tuple[Way, ...]] | None:
        """The least value and every way to it, if it is less than `below`."""
        self.best = min(self.known, below - 1)
        order = counter()
        heap = [(self._bound(self.root), next(order), self.root)]
        points: list[Box] = []
        while heap and heap[0][0] <= self.best:
            box = self._tightened(heappop(heap)[2])
            if box is None:
                continue
            if box.is_exact and _is_point(box):
                points.append(box)
            for part in self._parts(box):
                heappush(heap, (self._bound(part), next(order), part))
        found = [box for box in points if self._bound(box) == self.best]
        return (self.best, self._ways(found)) if found else None

    def _bound(self, box: Box) -> int:
        return self._value(box, min(box.totals.values()))

    def _value(self, box: Box, total: int) -> int:
        beat, worst = self.beats[box.beat[0]], self.worsts[box.worst[0]]
        return self.weights.value(int(beat), int(worst), total)

    def _tightened(self, box: Box) -> Box | None:
        """The box with sums of its own, as far as the best value; None where nothing is left."""
        if not box.is_exact:
            box = replace(box, totals=self._totals(box), is_exact=True)
            if not box.totals or self._bound(box) > self.best:
                return None
            self.best = min(self.best, self._worth_of_a_chain(box))
        return self._narrowed(box) if self._bound(box) <= self.best else None

    def _chains(self, box: Box) -> Chains:
        columns = limited(self.decode, self.prefill, int(self.beats[box.beat[1]]))
        return Chains(columns, "sum", self._limits(box))

    def _limits(self, box: Box) -> Limits:
        return Limits(most=int(self.worsts[box.worst[1]]))

    def _totals(self, box: Box) -> dict[Start, int]:
        chains, number, totals = self._chains(box), self.weights.num_stages, {}
        for start, known in box.totals.items():
            if self._value(box, known) <= self.best:
                totals[start] = chains.best_by_count(start, number)[number]
        return {start: total for start, total in totals.items() if total < INF}

    def _worth_of_a_chain(self, box: Box) -> int:
        """Of one of the least sum: no box beyond that need be looked into."""
        start = min(box.totals, key=lambda start: (box.totals[start], start))
        chains, number = self._chains(box), self.weights.num_stages
        target = Target(box.totals[start], number, self._limits(box))
        shape = choose(chains.columns, [start], target)
        prefill, decode = parts_of(self.prefill, shape), parts_of(self.decode, shape)
        return self.weights.value(max(prefill), max(decode), sum(decode))

    def _narrowed(self, box: Box) -> Box:
        """Without upper ends worth more than the best; worst parts that S hides are no range."""
        weights, total = self.weights, min(box.totals.values())
        (beat, last_beat), (worst, last_worst) = box.beat, box.worst
        turn = weights.turn(int(self.worsts[worst]), total)
        most = (self.best - weights.tokens * turn) // weights.beats
        ends = [min(last_beat, _last_place(self.beats, most)), last_worst]
        if weights.in_flight > 1:
            most = (self.best - weights.beats * int(self.beats[beat])) // weights.tokens
            ends[1] = min(last_worst, _last_place(self.worsts, most // weights.in_flight))
        if weights.turn(int(self.worsts[ends[1]]), total) == turn:
            worst = ends[1]
        is_same = (last_beat, last_worst) == tuple(ends)
        return Box((beat, ends[0]), (worst, ends[1]), box.totals, is_same)

    def _parts(self, box: Box) -> Iterator[Box]:
        """Two halves of the range that matters more; the upper one keeps its sums."""
        if _is_point(box):
            if not box.is_exact:
                yield box
            return
        beats, worsts = self.beats[list(box.beat)], self.worsts[list(box.worst)]
        by_beat = self.weights.beats * int(beats[1] - beats[0])
        total = min(box.totals.values())
        turns = [self.weights.turn(int(worst), total) for worst in worsts]
        if by_beat >= self.weights.tokens * (turns[1] - turns[0]):
            low, high = _halves(self.beats, box.beat)
            yield replace(box, beat=low, is_exact=False)
            yield replace(box, beat=high)
        else:
            low, high = _halves(self.worsts, box.worst)
            yield replace(box, worst=low, is_exact=False)
            yield replace(box, worst=high)

    def _ways(self, points: list[Box]) -> tuple[Way, ...]:
        """One for each worst prefill part among the optima, with all its first seats."""
        places = sorted({box.beat[0] for box in points})
        return tuple(self._way(int(self.beats[place])) for place in places)

    def _way(self, beat: int) -> Way:
        number = self.weights.num_stages
        turn = (self.best - self.weights.beats * beat) // self.weights.tokens
        limits = Limits(most=turn // self.weights.in_flight)
        columns = limited(self.decode, self.prefill, beat)
        chains = Chains(columns, "sum", limits)
        starts = tuple(
            start for start, total in self.root.totals.items()
            if total <= turn and chains.best_by_count(start, number)[number] <= turn
        )  # fmt: skip
        return Way(columns, starts, Target(turn, number, limits))


def _place(costs: Table, least: int) -> int:
    return int(np.searchsorted(costs, least))


def _last_place(costs: Table, most: int) -> int:
    return int(np.searchsorted(costs, most, side="right")) - 1


def _halves(costs: Table, places: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Parted at the mean cost; neither half is empty."""
    low, high = places
    middle = min(max(_last_place(costs, int(costs[low] + costs[high]) // 2), low), high - 1)
    return (low, middle), (middle + 1, high)


def _is_point(box: Box) -> bool:
    return box.beat[0] == box.beat[1] and box.worst[0] == box.worst[1]
