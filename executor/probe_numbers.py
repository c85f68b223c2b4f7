"""From clocks to the numbers that a topology has."""

import statistics
from collections.abc import Sequence

_DIGITS = 4


def median_us(sent_ns: Sequence[int], received_ns: Sequence[int]) -> float:
    """Median of the one-way times between two lists of clocks."""
    return statistics.median(
        (end - begin) / 1e3 for begin, end in zip(sent_ns, received_ns, strict=True)
    )


def rounded(value: float) -> float:
    """Four significant digits: a measurement does not know more."""
    return float(f"{value:.{_DIGITS}g}")


def rounded_points(points: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((size, rounded(value)) for size, value in points)


def rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, none above a later one: fewer bytes take no longer, and noise only adds."""
    return [(size, min(us for _, us in points[i:])) for i, (size, _) in enumerate(points)]
