"""Hops between units, all pairs at once (cost/comm.py says what a hop is)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plancc.compiler.cost.comm import hop_ns
from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.units import Unit


@dataclass(frozen=True)
class UnitHops:
    """ns for a step's hidden rows, `size_bytes`, from every unit to every unit."""

    problem: Problem
    units: tuple[Unit, ...]
    size_bytes: int

    @cached_property
    def table(self) -> Table:
        """[units, units]; on pairs that share a seat it means nothing."""
        table = np.zeros((len(self.units), len(self.units)), np.int64)
        by_size: dict[int, list[int]] = {}
        for number, unit in enumerate(self.units):
            by_size.setdefault(len(unit.port), []).append(number)
        for sources in by_size.values():
            for targets in by_size.values():
                table[np.ix_(sources, targets)] = self._between(sources, targets)
        return table

    def _between(self, sources: list[int], targets: list[int]) -> Table:
        exits = np.array([self.units[number].port for number in sources])
        entries = np.array([self.units[number].port for number in targets])
        peers = [(rank % exits.shape[1], rank) for rank in range(entries.shape[1])]
        ends = [(exits[:, a, None], entries[None, :, b]) for a, b in peers]
        found = [self._shared([end for (a, _), end in zip(peers, ends, strict=True) if a == rank])
                 for rank in range(min(exits.shape[1], entries.shape[1]))]  # fmt: skip
        for trunk in range(len(self._trunks)):
            found.append(self._shared(ends, trunk))
        slowest: Table = np.maximum.reduce(found)
        return slowest

    def _shared(self, ends: list[tuple[Table, Table]], trunk: int | None = None) -> Table:
        """The largest wait and the sum of rests of transfers that share a sender or a trunk."""
        waits, rests = [], []
        for one, two in ends:
            inside = 1 if trunk is None else self._trunk_of[one, two] == trunk
            waits.append(self._wait[one, two] * inside)
            rests.append(self._rest[one, two] * inside)
        total: Table = np.maximum.reduce(waits) + np.add.reduce(rests)
        return total

    def _links(self, size_bytes: int) -> Table:
        names = self.problem.seats
        return np.array([[0 if a == b else hop_ns(self.problem.topology, a, b, size_bytes)
                          for b in names] for a in names], np.int64)  # fmt: skip

    @cached_property
    def _wait(self) -> Table:
        return self._links(1)

    @cached_property
    def _rest(self) -> Table:
        return self._links(self.size_bytes) - self._wait

    @cached_property
    def _trunks(self) -> list[str]:
        return sorted({link.trunk for link in self.problem.topology.links if link.trunk})

    @cached_property
    def _trunk_of(self) -> Table:
        """[seats, seats] number of the link's trunk, or -1."""
        table = np.full((self.problem.num_seats,) * 2, -1, np.int64)
        for one, a in enumerate(self.problem.seats):
            for two, b in enumerate(self.problem.seats):
                link = self.problem.topology.link(a, b)
                if link is not None and link.trunk:
                    table[one, two] = self._trunks.index(link.trunk)
        return table
