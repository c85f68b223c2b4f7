"""What could be different: every change that a sensitivity tries, in a fixed order.

Devices that may change places with each other are tried once: the optimum is the same whichever
of them changes. Links with equal numbers change together. What no stage uses is only made better,
since making it worse changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from plancc.compiler.placement.question import build_problem
from plancc.ir.plan import Plan
from plancc.ir.topology import Link, Topology

MOST_LINK_GROUPS = 4
DeviceKind = Literal["read", "matmul", "memory"]
Kind = Literal["read", "matmul", "link", "exchange", "memory", "context", "slots"]


@dataclass(frozen=True)
class Part:
    """What changes: rates or memory of a device, a group of links, or a number of the ask."""

    kind: Kind
    names: tuple[str, ...]  # a device; 'a->b' of each link; a group's devices
    words: str
    is_used: bool = True  # by a stage of the plan


@dataclass(frozen=True)
class Variant:
    """`factor` is of a rate (0.9: slower), of a count (2: doubled), or GiB more of memory."""

    part: Part
    factor: float

    @property
    def words(self) -> str:
        if self.part.kind == "memory":
            return f"{self.part.words} +{self.factor:g} GiB"
        if self.part.kind in ("context", "slots"):
            return f"{self.part.words} x {self.factor:g}"
        return f"{self.part.words} {100 * (self.factor - 1):+.0f} %"


def variants(plan: Plan, topology: Topology) -> tuple[Variant, ...]:
    """In the order of the plan's stages: rates, links, exchanges, memory, then the ask."""
    rates = (
        *rate_parts(plan, topology),
        *link_parts(plan, topology),
        *_exchange_parts(plan, topology),
    )
    found = [Variant(part, factor) for part in rates
             for factor in ((1.1, 0.9) if part.is_used else (1.1,))]  # fmt: skip
    found += [Variant(part, 1) for part in device_parts(plan, topology, "memory")]
    if plan.ask.objective != "context":
        found.append(Variant(Part("context", (), "context"), 2))
    return (*found, Variant(Part("slots", (), "slots"), 2))


def most_promising(tried: Sequence[Variant], count: int) -> tuple[Variant, ...]:
    """So many of them, in their order: the ask, what gets slower, room where the plan is."""
    ranks = sorted(range(len(tried)), key=lambda index: (_promise(tried[index]), index))
    return tuple(tried[index] for index in sorted(ranks[:count]))


def _promise(variant: Variant) -> int:
    part = variant.part
    if part.kind in ("context", "slots"):
        return 0
    if part.is_used and part.kind == "memory":
        return 2
    return 1 if part.is_used and variant.factor < 1 else 3


def rate_parts(plan: Plan, topology: Topology) -> Iterator[Part]:
    """Reads, and matrix products where the objective counts prompts: they decide those."""
    reads = device_parts(plan, topology, "read")
    if plan.ask.objective not in ("prefill", "workload"):
        yield from reads
        return
    products = device_parts(plan, topology, "matmul")
    if plan.ask.objective == "prefill":
        yield from (*products, *reads)
        return
    for of_device in zip(products, reads, strict=True):
        yield from of_device


def device_parts(plan: Plan, topology: Topology, kind: DeviceKind) -> Iterator[Part]:
    """One device of each class: used ones first, in stage order."""
    used = [rank.device for stage in plan.stages for rank in stage.ranks]
    problem = build_problem(plan.model, topology, plan.ask)
    classes = dict(zip(problem.seats, problem.seat_classes, strict=True))
    seen: set[int] = set()
    for name in dict.fromkeys([*used, *problem.seats]):
        if classes[name] in seen:
            continue
        seen.add(classes[name])
        alike = sum(other == classes[name] for other in classes.values()) - 1
        words = f"{name} (or {alike} like it)" if alike else name
        yield Part(kind, (name,), f"{_WHAT[kind]} of {words}", name in used)


_WHAT: dict[DeviceKind, str] = {
    "read": "read rate",
    "matmul": "matmul and attention rate",
    "memory": "memory",
}


def link_parts(plan: Plan, topology: Topology) -> Iterator[Part]:
    """Links with equal numbers together: those that cost the plan most, then all the rest."""
    hops = _used_pairs(plan)
    groups: dict[object, list[Link]] = {}
    for link in sorted(topology.links, key=lambda link: (link.from_, link.to)):
        groups.setdefault(_numbers(link), []).append(link)
    order = [key for pair in hops for key, links in groups.items()
             if pair in [(link.from_, link.to) for link in links]]  # fmt: skip
    taken = list(dict.fromkeys(order))
    used = taken[:MOST_LINK_GROUPS]
    for key in used:
        first = next(f"{a}->{b}" for a, b in hops if (a, b) in _pairs(groups[key]))
        yield _link_part(groups[key], first)
    rest = [link for key, links in groups.items() if key not in used for link in links]
    if rest:
        words = "all links" if not used else "all other links"
        names = tuple(f"{link.from_}->{link.to}" for link in rest)
        words = words if len(rest) > 1 else f"link {names[0]}"
        yield Part("link", names, words, len(taken) > len(used))


def _link_part(links: Sequence[Link], first: str) -> Part:
    names = tuple(f"{link.from_}->{link.to}" for link in links)
    more = f" and {len(links) - 1} like it" if len(links) > 1 else ""
    return Part("link", names, f"link {first}{more}")


def _pairs(links: Sequence[Link]) -> list[tuple[str, str]]:
    return [(link.from_, link.to) for link in links]


def _numbers(link: Link) -> object:
    return (link.mode, link.latency_us, link.bandwidth_gb_s, link.points, link.trunk)


def _used_pairs(plan: Plan) -> list[tuple[str, str]]:
    """Device pairs that rows or the token take; first where a step spends most."""
    seats = [(number, rank.device) for number, stage in enumerate(plan.stages)
             for rank in stage.ranks]  # fmt: skip
    times = plan.predicted.decode.stages
    costs: dict[tuple[str, str], int] = {}
    for link in plan.links:
        (one, source), (two, target) = seats[link.from_], seats[link.to]
        if link.payload != "step" and source != target:
            time = times[one].exchange_ns if one == two else times[one].hop_ns
            costs[source, target] = max(time, costs.get((source, target), 0))
    back = (plan.stages[-1].ranks[0].device, plan.stages[0].ranks[0].device)
    if len(plan.stages) > 1 and back[0] != back[1]:
        costs.setdefault(back, times[-1].hop_ns)
    return sorted(costs, key=lambda pair: -costs[pair])


def _exchange_parts(plan: Plan, topology: Topology) -> Iterator[Part]:
    """Measured exchanges of the plan's groups."""
    for stage in plan.stages:
        names = tuple(rank.device for rank in stage.ranks)
        if len(names) > 1 and topology.exchange(names) is not None:
            yield Part("exchange", names, f"exchange of {'+'.join(names)}")
