"""The TP group of a rank, as its backend and its links see it. No torch."""

from dataclasses import dataclass
from functools import cached_property

from plancc.ir.groups import Mixer, holders, share_roots
from plancc.ir.tiles import Span, tree_nodes


@dataclass(frozen=True)
class Group:
    """`shares` are every rank's tiles in rank order; `number` is this rank's place among them."""

    mixer: Mixer
    shares: tuple[Span, ...]
    number: int

    @property
    def holds_rows(self) -> bool:
        """Whether it runs mixers, keeps KV, and adds the partial rows of all."""
        return self.number in holders(self.mixer, len(self.shares))

    @property
    def is_owner(self) -> bool:
        return self.mixer == "owned" and self.number == 0

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Partial rows of each rank for one row of the step."""
        return share_roots(self.shares)


def root_merges(spans: tuple[Span, ...]) -> list[int]:
    """For each root of all ranks, in tile order: how many nodes of the tree end with it, besides
    itself. So often the two last sums are added once it is there."""
    nodes = list(tree_nodes(0, spans[-1][1]))
    return [sum(b == end and a < first for a, b in nodes) for first, end in spans]
