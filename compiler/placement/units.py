"""Units, what a stage may sit on: one seat, or the seats of a TP group in rank order.

Seats that may be exchanged are used in the order of their names, so of equal units one is listed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from plancc.compiler.placement.problem import Problem
from plancc.ir.groups import Mixer, holders
from plancc.ir.layers import num_tiles

MOST_RANKS = 4
MOST_EQUAL_RANKS = 8  # where all devices of the group may be exchanged


@dataclass(frozen=True)
class Unit:
    """Seats in rank order; the first is the lead, which has the blocks and an owned mixer."""

    seats: tuple[int, ...]
    mixer: Mixer = "single"

    @property
    def lead(self) -> int:
        return self.seats[0]

    @property
    def size(self) -> int:
        return len(self.seats)

    @cached_property
    def mask(self) -> int:
        return sum(1 << seat for seat in self.seats)

    @property
    def port(self) -> tuple[int, ...]:
        """Seats that hold residual rows, in rank order: hops come and go there."""
        return tuple(self.seats[rank] for rank in holders(self.mixer, self.size))

    @property
    def is_plain(self) -> bool:
        """Led by its first seat: without blocks who leads a replicated group changes nothing."""
        return self.mixer != "replicated" or self.lead == min(self.seats)


def allows_groups(problem: Problem) -> bool:
    tp = problem.ask.tp
    return tp not in ("off", 1) and not problem.shares_devices and problem.num_seats > 1


def allows_pipelines(problem: Problem) -> bool:
    """--tp N asks for groups of N everywhere."""
    return problem.ask.tp in ("auto", "off", 1)


def may_group(problem: Problem) -> bool:
    """Whether the ask lets any devices form a group, and some may."""
    return allows_groups(problem) and next(_groups(problem), None) is not None


def seats_before(problem: Problem, unit: Unit) -> int:
    """Seats that must be used before the unit: equal ones that come earlier by name."""
    classes = problem.seat_classes
    earlier = {s for seat in unit.seats for s in range(seat) if classes[s] == classes[seat]}
    return sum(1 << seat for seat in earlier - set(unit.seats))


def singles(problem: Problem) -> tuple[Unit, ...]:
    return tuple(Unit((seat,)) for seat in range(problem.num_seats))


def units_of(problem: Problem) -> tuple[Unit, ...]:
    """Every unit that the ask allows, singles first; groups by size, seats and lead."""
    if not allows_groups(problem):
        return singles(problem)
    asked = problem.ask.tp
    groups = tuple(_groups(problem))
    return groups if isinstance(asked, int) else (*singles(problem), *groups)


def _groups(problem: Problem) -> Iterator[Unit]:
    most_tiles = max(map(num_tiles, problem.model.layers), default=0)
    for size in _sizes(problem):
        if size > most_tiles:
            return
        for seats in combinations(range(problem.num_seats), size):
            if _may_join(problem, seats):
                yield from _led(problem, seats)


def _sizes(problem: Problem) -> range:
    most = min(problem.num_seats, MOST_EQUAL_RANKS, problem.ask.max_devices or MOST_EQUAL_RANKS)
    if isinstance(problem.ask.tp, int):
        return range(problem.ask.tp, min(problem.ask.tp, most) + 1)
    return range(2, most + 1)


def _may_join(problem: Problem, seats: tuple[int, ...]) -> bool:
    """One kind; one host or a measured exchange; more than a few only if equal; equals by name."""
    classes = [problem.seat_classes[seat] for seat in seats]
    if len(seats) > MOST_RANKS and len(set(classes)) > 1:
        return False
    if not _classes_have_no_gap(problem, seats):
        return False
    if len({problem.devices[seat].kind for seat in seats}) > 1:
        return False  # kinds sum in different ways: the group would not have one device's bits
    hosts = {problem.devices[seat].host for seat in seats}
    names = tuple(problem.seats[seat] for seat in seats)
    return len(hosts) == 1 or problem.topology.exchange(names) is not None


def _classes_have_no_gap(problem: Problem, seats: tuple[int, ...]) -> bool:
    for number in set(problem.seat_classes[seat] for seat in seats):
        members = [s for s in range(problem.num_seats) if problem.seat_classes[s] == number]
        taken = [members.index(seat) for seat in seats if seat in members]
        if taken != list(range(taken[0], taken[0] + len(taken))):
            return False
    return True


def _led(problem: Problem, seats: tuple[int, ...]) -> Iterator[Unit]:
    """Each seat as lead, the others by name; the asked order says who leads."""
    leads = seats[:1] if problem.in_order else _first_of_class(problem, seats)
    for mixer in ("replicated", "owned"):
        for lead in leads:
            others = tuple(seat for seat in seats if seat != lead)
            yield Unit((lead, *others), mixer)


def _first_of_class(problem: Problem, seats: tuple[int, ...]) -> list[int]:
    known: dict[int, int] = {}
    for seat in seats:
        known.setdefault(problem.seat_classes[seat], seat)
    return sorted(known.values())
