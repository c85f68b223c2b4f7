"""What ranks of a group lose to each other, from rounds with and without each other. No torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Self

from plancc.executor.probe_numbers import rising, rounded_points
from plancc.ir.exchange import Exchange

_LEAST_US = 1.0


@dataclass(frozen=True)
class Rounds:
    """Means of one rank, us: a short and a long round's computing alone; a long round of all, whose
    rows are tiny; and by size of the rows a short round of all, and one of an owner's."""

    alone_us: float
    long_alone_us: float
    long_us: float
    together_us: tuple[float, ...]
    owned_us: tuple[float, ...]

    @classmethod
    def mean(cls, turns: Sequence[Self]) -> Self:
        return cls(
            alone_us=mean(turn.alone_us for turn in turns),
            long_alone_us=mean(turn.long_alone_us for turn in turns),
            long_us=mean(turn.long_us for turn in turns),
            together_us=tuple(map(mean, zip(*(turn.together_us for turn in turns), strict=True))),
            owned_us=tuple(map(mean, zip(*(turn.owned_us for turn in turns), strict=True))),
        )

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """As `data` gave it, through JSON."""
        return cls(**data)

    def data(self) -> dict[str, Any]:
        return asdict(self)


def exchange_of(names: Sequence[str], sizes: Sequence[int], ranks: Sequence[Rounds]) -> Exchange:
    """`ranks` in the order of names, the owner first; the first size is tiny.

    Of what a long round takes longer than alone, a short one does not lose all: the difference is
    what computing at once costs, in proportion to computing. The rest is the exchange's own.
    """
    alone_us = max(rank.alone_us for rank in ranks)
    more_us = max(rank.long_alone_us for rank in ranks) - alone_us
    short_us, long_us = (max(times) for times in (
        [rank.together_us[0] for rank in ranks], [rank.long_us for rank in ranks]))  # fmt: skip
    slowdown = max(1.0, round((long_us - short_us) / more_us, 3)) if more_us > 0 else 1.0
    together_us = slowdown * alone_us
    owned_us = ranks[0].alone_us / 2 + together_us / 2
    return Exchange(
        group=tuple(names),
        points=_points(sizes, [rank.together_us for rank in ranks], together_us),
        owned_points=_points(sizes, [ranks[0].owned_us], owned_us),
        slowdown=slowdown,
    )


def _points(
    sizes: Sequence[int], times_us: Sequence[tuple[float, ...]], computing_us: float
) -> tuple[tuple[float, float], ...]:
    """By size, what the slowest rank's round takes beside computing."""
    points = [
        (size, max(_LEAST_US, *(times[index] - computing_us for times in times_us)))
        for index, size in enumerate(sizes)
    ]
    return tuple(rounded_points(rising(points)))
