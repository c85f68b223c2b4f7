"""Every placement of a small model, one by one: an oracle that shares no code with the solver.

Which lineups, cuts and tile runs there are is in `plancc_bruteforce_shapes`, what they weigh and
take in `plancc_bruteforce_sums`. Here they are judged. Two things are passed over, both for sure:
a stage's tile runs that are nowhere better than others, and stages that with those before them
are already slower than a whole placement of as many devices, in groups or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise, product

from plancc_bruteforce_bytes import Group, Role
from plancc_bruteforce_shapes import is_led_by_name, legal_cuts, lineups, tile_runs
from plancc_bruteforce_sums import Sums, num_beats, turns

from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span
from plancc.ir.topology import Topology

MIXERS = ("single", "replicated", "owned")


@dataclass(frozen=True)
class Candidate:
    """One whole placement: stages, their first layers, tile runs, head and homes of free blocks."""

    groups: tuple[Group, ...]
    cuts: tuple[int, ...]
    tiles: tuple[tuple[Span, ...], ...]
    head: str
    homes: tuple[int, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group.devices)

    @property
    def kind(self) -> tuple[int, bool]:
        """Number of devices, and whether any stage is a group: what is preferred before time."""
        has_group = any(group.mixer != "single" for group in self.groups)
        return len(set(self.devices)), has_group


@dataclass(frozen=True)
class Judged:
    """A placement that fits: its objective's value, its tightest device's room."""

    candidate: Candidate
    value: int
    room: int

    def order(self) -> tuple[object, ...]:
        """The design's preference among shapes of one kind, best first."""
        shape = self.candidate
        mixers = tuple(MIXERS.index(group.mixer) for group in shape.groups)
        return (self.value, -self.room, shape.devices, len(shape.groups), shape.head == "first",
                shape.cuts, mixers, shape.tiles, shape.homes)  # fmt: skip


Option = tuple[int, int, tuple[Span, ...]]
"""(ns, bytes left on the tightest rank, tile runs) of a stage"""


class BruteForce:
    def __init__(self, model: ModelShape, topology: Topology, ask: Ask) -> None:
        kept = tuple(block for block in model.blocks if block.name not in ask.without)
        self.model = model.model_copy(update={"blocks": kept})
        self.topology, self.ask = topology, ask
        self.places = {block.name: ask.pin.get(block.name, block.place) for block in kept}
        ends = ("embed", "head")
        self.free = [name for name, place in self.places.items()
                     if name not in ends and place not in ("first", "last")]  # fmt: skip
        self.cuts = legal_cuts(self.model)

    def best(self, context: int | None = None) -> tuple[int, Judged] | None:
        """(T*, the preferred shape); None where nothing fits."""
        found = self.search(context or self.ask.context or 1).by_kind()
        if not found:
            return None
        least = min(judged.value for judged in found.values())
        margin = 0.0 if self.ask.objective == "context" else self.ask.margin
        most = int(least * (1 + Fraction(str(margin))))
        near = [kind for kind, judged in found.items() if judged.value <= most]
        return least, found[min(near)]

    def fits(self, context: int) -> bool:
        return bool(self.search(context).by_kind())

    def search(self, context: int) -> "Search":
        if self.ask.objective != "workload":
            return Search(self, context)
        from plancc_bruteforce_workload import WorkloadSearch

        return WorkloadSearch(self, context)

    def heads(self, num_stages: int) -> tuple[str, ...]:
        if "head" not in self.places or num_stages == 1:
            return ("last",)
        return ("last", "first") if self.ask.head == "auto" else (self.ask.head,)

    def blocks_at(self, stage: int, num_stages: int, homes: tuple[int, ...]) -> tuple[str, ...]:
        """Blocks of a stage, embed and head left out."""
        at = {"first": 0, "last": num_stages - 1}
        return tuple(
            name for name, place in self.places.items()
            if name not in ("embed", "head")
            and (homes[self.free.index(name)] if name in self.free else at[place]) == stage
        )  # fmt: skip

    def honours_pins(self, lineup: tuple[Group, ...], head: str, homes: tuple[int, ...]) -> bool:
        stages = {"embed": 0, "head": 0 if head == "first" else len(lineup) - 1}
        stages |= dict(zip(self.free, homes, strict=True))
        return all(
            self.places[name] in ("first", "last", "any", lineup[stage].devices[0])
            for name, stage in stages.items() if name in self.places
        )  # fmt: skip


def is_searched(lineup: tuple[Group, ...], ask: Ask) -> bool:
    """For what is timed by beats a group is tried only where it holds the whole model."""
    has_group = any(len(group.devices) > 1 for group in lineup)
    return not (has_group and len(lineup) > 1 and ask.objective in ("prefill", "throughput"))


class Search:
    """The best of each kind at one context, stage by stage."""

    def __init__(self, oracle: BruteForce, context: int) -> None:
        self.oracle, self.ask, self.context = oracle, oracle.ask, context
        self.found: dict[tuple[int, bool], Judged] = {}
        self.by_stages = cache(self._by_stages)
        self.options = cache(self._options)

    def by_kind(self) -> dict[tuple[int, bool], Judged]:
        for lineup in lineups(self.oracle.model, self.oracle.topology, self.ask):
            if not is_searched(lineup, self.ask):
                continue
            for head in self.oracle.heads(len(lineup)):
                for homes in product(range(len(lineup)), repeat=len(self.oracle.free)):
                    legal = self.oracle.honours_pins(lineup, head, homes)
                    if legal and is_led_by_name(lineup, homes, self.ask):
                        self._try_cuts(lineup, head, homes)
        return self.found

    def _try_cuts(self, lineup: tuple[Group, ...], head: str, homes: tuple[int, ...]) -> None:
        sums, hops = self.sums(len(lineup)), self.hops(lineup, head)
        kind = Candidate(lineup, (), (), head, homes).kind
        roles = [self.role(lineup, head, homes, stage) for stage in range(len(lineup))]
        for cuts, chosen in self._chains(lineup, roles, (0,), (), hops, kind):
            times = [option[0] for option in chosen]
            shape = Candidate(lineup, cuts, tuple(option[2] for option in chosen), head, homes)
            room = self._room(lineup, chosen, sums)
            if room < 0:
                continue
            judged = Judged(shape, self.value(lineup, times, hops), room)
            if kind not in self.found or judged.order() < self.found[kind].order():
                self.found[kind] = judged

    def _room(self, lineup: tuple[Group, ...], chosen: tuple[Option, ...], sums: Sums) -> int:
        """Seats of one device share its budget; else the tightest stage decides."""
        rooms: dict[str, int] = {}
        for group, option in zip(lineup, chosen, strict=True):
            name, room = group.devices[0], option[1]
            if name in rooms:
                room += rooms[name] - sums.budget(name)
            rooms[name] = room
        return min(rooms.values())

    def _chains(
        self, lineup: tuple[Group, ...], roles: list[Role], cuts: tuple[int, ...],
        chosen: tuple[Option, ...], hops: list[int], kind: tuple[int, bool],
    ) -> Iterator[tuple[tuple[int, ...], tuple[Option, ...]]]:  # fmt: skip
        stage, count = len(chosen), len(lineup)
        if stage == count:
            yield cuts, chosen
            return
        for end in self._ends(cuts[-1], stage, count):
            for option in self.options(lineup[stage], cuts[-1], end, roles[stage]):
                taken = (*chosen, option)
                value = self.value(lineup, [item[0] for item in taken], hops)
                if kind not in self.found or value <= self.found[kind].value:
                    yield from self._chains(lineup, roles, (*cuts, end), taken, hops, kind)

    def _ends(self, first: int, stage: int, count: int) -> Iterator[int]:
        asked, num_layers = self.ask.stage_layers, len(self.oracle.model.layers)
        for end in (*self.oracle.cuts, num_layers):
            if end <= first or (stage == count - 1) != (end == num_layers):
                continue
            if asked is None or end - first == asked[stage]:
                yield end

    def _options(self, group: Group, first: int, end: int, role: Role) -> tuple[Option, ...]:
        """(time, room, tiles) of each deal of tiles that fits and is not beaten by another."""
        sums, layers = self.sums(role.num_stages), (first, end)
        fitting: list[Option] = []
        for tiles in tile_runs(self.oracle.model, layers, len(group.devices)):
            room = min(
                sums.budget(name) - sum(sums.columns(group, tiles, layers, role, rank))
                for rank, name in enumerate(group.devices)
            )
            if room >= 0:
                time = sums.compute(group, tiles, layers, role)
                fitting.append((time + sums.exchanged(group, tiles, layers, role), room, tiles))
        return tuple(one for one in fitting if not any(_beats(other, one) for other in fitting))

    def role(self, lineup: tuple[Group, ...], head: str, homes: tuple[int, ...], s: int) -> Role:
        count = len(lineup)
        has_head = "head" in self.oracle.places and s == (0 if head == "first" else count - 1)
        blocks = self.oracle.blocks_at(s, count, homes)
        return Role(s, count, has_head, head == "first" and count > 1, blocks)

    def sums(self, num_stages: int) -> Sums:
        """Of a decode step's rows, or a chunk's; for throughput the rows depend on the depth."""
        return self.by_stages(num_stages if self.ask.objective == "throughput" else 0)

    def _by_stages(self, num_stages: int) -> Sums:
        oracle, rows = self.oracle, 1
        if self.ask.objective == "prefill":
            rows = min(self.ask.prefill_chunk, self.ask.prompt or 1)
        elif num_stages:
            rows = -(-self.ask.slots // num_stages)
        return Sums(oracle.model, oracle.topology, self.ask, self.context, rows,
                    is_prompt=self.ask.objective == "prefill")  # fmt: skip

    def hops(self, lineup: tuple[Group, ...], head: str) -> list[int]:
        if len(lineup) == 1:
            return []
        sums = self.sums(len(lineup))
        forth = [sums.hop(*pair) for pair in pairwise(lineup)]
        return [*forth, sums.back(lineup[-1], lineup[0], head == "first")]

    def value(self, lineup: tuple[Group, ...], stages: list[int], hops: list[int]) -> int:
        """The objective, in ns. Of the first stages alone it is a bound from below."""
        total, worst = sum(stages) + sum(hops), max(*turns(lineup, stages), *hops, 0)
        if self.ask.objective == "prefill":
            return num_beats(self.ask, lineup) * worst
        if self.ask.objective == "throughput":
            return max(min(self.ask.slots, len(lineup)) * worst, total)
        return total


def _beats(other: Option, one: Option) -> bool:
    """Neither slower, nor tighter, nor later in order: in no placement is `one` preferred."""
    return other != one and other[0] <= one[0] and other[1] >= one[1] and other[2] <= one[2]
