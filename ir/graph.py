"""The model as ops in a valid order. A pass makes a new graph; nothing here is changed in place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from plancc.ir.op import Op, Seat


@dataclass(frozen=True)
class Graph:
    """Ops, each after the ops it reads, and the names of the ops whose values are the answer."""

    ops: tuple[Op, ...]
    outputs: tuple[str, ...]

    @cached_property
    def by_name(self) -> dict[str, Op]:
        return {op.name: op for op in self.ops}

    @cached_property
    def consumers(self) -> dict[str, tuple[Op, ...]]:
        """For each op's name the ops that read it, in order."""
        found: dict[str, list[Op]] = {op.name: [] for op in self.ops}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                found.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in found.items()}

    def map(self, change: Callable[[Op], Op]) -> "Graph":
        """The same order with every op changed; names and inputs are the change's concern."""
        return replace(self, ops=tuple(change(op) for op in self.ops))

    def on(self, rank: int) -> Iterator[Op]:
        """A rank's ops, in order."""
        return (op for op in self.ops if op.seat is not None and op.seat.rank == rank)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Every seat that an op has, by rank."""
        seats = {op.seat for op in self.ops if op.seat is not None}
        return tuple(sorted(seats, key=lambda seat: (seat.rank, seat.stage)))
