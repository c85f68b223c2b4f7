"""Which links share something on the way: told by what they do to each other when busy at once.

Links of one sender, or one receiver, share that end anyway. Two others share where both together
take more than a quarter longer than the slower one alone. Groups that came of that are one where
all their links at once take a quarter longer than their ends and the groups apart explain: a link
can name but one trunk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

SLOWER = 1.25
_FEW = 4  # devices whose links are tried in twos at once: a few seconds

Pair = tuple[str, str]
Together = Callable[[Sequence[Pair]], float]


@dataclass(frozen=True)
class Sharing:
    """Trunks by link; `unexplained`: links that were slower all at once, though no two were."""

    trunks: Mapping[Pair, str]
    unexplained: tuple[Pair, ...] = ()


def rounds(names: Sequence[str]) -> list[list[Pair]]:
    """Every ordered pair among others, then every one beside the other direction; in a round no
    device sends twice or receives twice."""
    count = len(names)
    shifts = [
        [(names[at], names[(at + distance) % count]) for at in range(count)]
        for distance in range(1, count)
    ]
    return shifts + ([_both_ways(names, turn) for turn in range(count)] if count > 2 else [])


def _both_ways(names: Sequence[str], turn: int) -> list[Pair]:
    """Devices whose places add up to `turn`, in a circle; of an odd count one is left out, of an
    even count one or two."""
    count = len(names)
    places = [(at, (turn - at) % count) for at in range(count)]
    return [(names[one], names[other]) for one, other in places if one != other]


def find_trunks(
    names: Sequence[str], alone_us: Mapping[Pair, float], together_us: Together, prefix: str
) -> Sharing:
    """together_us: time in which one hop of each pair is done, all begun at once.

    Many devices are tried two links at a time only where some round was slower.
    """
    slow = [pair for pairs in rounds(names) if _is_slower(pairs, alone_us, together_us)
            for pair in pairs]  # fmt: skip
    if not slow and len(names) > _FEW:
        return Sharing({})
    groups: list[set[Pair]] = []
    for one, other in combinations(alone_us, 2):
        ends_differ = one[0] != other[0] and one[1] != other[1]
        if ends_differ and _is_slower((one, other), alone_us, together_us):
            groups = _united(groups, {one, other})
    if not groups:
        return Sharing({}, tuple(dict.fromkeys(slow)))
    groups = _merged(groups, alone_us, together_us)
    order = list(alone_us)
    groups.sort(key=lambda group: min(order.index(pair) for pair in group))
    return Sharing({pair: f"{prefix}{i}" for i, group in enumerate(groups) for pair in group})


def _is_slower(
    pairs: Sequence[Pair], alone_us: Mapping[Pair, float], together_us: Together
) -> bool:
    return together_us(pairs) > SLOWER * max(alone_us[pair] for pair in pairs)


def _merged(
    groups: list[set[Pair]], alone_us: Mapping[Pair, float], together_us: Together
) -> list[set[Pair]]:
    for one, other in combinations(groups, 2):
        pairs = [pair for pair in alone_us if pair in one | other]
        if together_us(pairs) > SLOWER * _explained_us(pairs, (one, other), alone_us):
            return _merged(_united(groups, one | other), alone_us, together_us)
    return groups


def _explained_us(
    pairs: Sequence[Pair], groups: Sequence[set[Pair]], alone_us: Mapping[Pair, float]
) -> float:
    """What links at once take where nothing but their ends and the groups is shared."""
    busy: dict[object, float] = {}
    for pair in pairs:
        inside = [at for at, group in enumerate(groups) if pair in group]
        for what in (("from", pair[0]), ("to", pair[1]), *inside):
            busy[what] = busy.get(what, 0.0) + alone_us[pair]
    return max(busy.values())


def _united(groups: list[set[Pair]], new: set[Pair]) -> list[set[Pair]]:
    touched = [group for group in groups if group & new]
    rest = [group for group in groups if not group & new]
    return [*rest, new.union(*touched)]
