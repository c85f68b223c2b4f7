"""Wires: ways between ranks of several processes by which rows stay on devices. No torch.

A plan's links of transport `nccl` are carried by them: those within a TP group by one wire of its
ranks, any other by a wire of its own, of two. Where such links are all that a rank has, nothing in
its program but the news of a step waits on the host.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from plancc.executor.seats import Seat, seats_of
from plancc.ir.instruction import Exchange, Recv, Send
from plancc.ir.plan import Plan, PlanLink

Flow = Literal["rows", "normed", "partial"]
"""What a link carries: a step's rows; an owner's normed rows, as many as its kernels say; partial
rows, at once with all others of an exchange. Who sends the last two leaves them alone until it has
an answer: an owner writes the next normed rows when all have answered these."""


@dataclass(frozen=True)
class WirePlan:
    """`ranks` in the order of their places; `links` by index in the plan."""

    name: str
    ranks: tuple[int, ...]
    links: tuple[int, ...]

    def sources(self, plan: Plan, rank: int) -> tuple[int, ...]:
        """Places from which rows come to the rank."""
        return self._places(plan.links[i].from_ for i in self.links if plan.links[i].to == rank)

    def targets(self, plan: Plan, rank: int) -> tuple[int, ...]:
        """Places to which rows of the rank go."""
        return self._places(plan.links[i].to for i in self.links if plan.links[i].from_ == rank)

    def _places(self, ranks: Iterator[int]) -> tuple[int, ...]:
        return tuple(sorted({self.ranks.index(rank) for rank in ranks}))


def wires_of(plan: Plan) -> tuple[WirePlan, ...]:
    """All wires, in the order in which every process opens those of its ranks: since that is one
    order, nobody waits at a wire for someone who waits for it at another."""
    seats, links = seats_of(plan), dict[str, list[int]]()
    for index, link in enumerate(plan.links):
        if link.transport == "nccl":
            links.setdefault(_name(index, link, seats), []).append(index)
    return tuple(
        WirePlan(name, tuple(sorted({rank for i in found for rank in _ends(plan.links[i])})),
                 tuple(found))
        for name, found in sorted(links.items())
    )  # fmt: skip


def flow_of(seats: Sequence[Seat], link: PlanLink) -> Flow:
    """What a link of rows carries between seats, which are those of the plan."""
    if link.payload == "partial":
        return "partial"
    source, target = (seats[rank] for rank in _ends(link))
    is_owners = source.group is not None and source.group.is_owner
    return "normed" if is_owners and source.stage == target.stage else "rows"


def tail_of(plan: Plan, seat: Seat) -> int | None:
    """The first instruction of the rank's program that is no news and has none behind it; None
    where rows of the rank go otherwise than by wires."""
    first = 0
    for at, item in enumerate(seat.program.instructions):
        if not isinstance(item, Recv | Send):
            continue
        link = plan.links[item.link]
        if link.payload == "step":
            first = at + 1
        elif link.transport != "nccl":
            return None
    exchanges = any(isinstance(item, Exchange) for item in seat.program.instructions)
    partial = [
        link for link in plan.links if link.payload == "partial" and seat.rank in _ends(link)
    ]
    if exchanges and any(link.transport != "nccl" for link in partial):
        return None
    return first if first else None


def _name(index: int, link: PlanLink, seats: tuple[Seat, ...]) -> str:
    stage = seats[link.from_].stage
    is_inside = stage == seats[link.to].stage
    return f"stage {stage:04d}" if is_inside else f"wire {index:04d}"


def _ends(link: PlanLink) -> tuple[int, int]:
    return link.from_, link.to
