"""A curve of read times from steps over kernels of many sizes: what no step tells of one kernel.

A step gives the sum of its kernels' times. The curve is piecewise linear between its knots, as
`ir.curve` evaluates it; for every step the sum over its kernels comes out as it was measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

Points = list[tuple[float, float]]

_ROUNDS = 200
_LEAST_US = 1e-3


@dataclass(frozen=True)
class Reading:
    """Kernels as (bytes, how many), and what all of them took together, launches taken off."""

    kernels: tuple[tuple[float, int], ...]
    us: float


def fit_points(
    readings: Sequence[Reading], sizes: Sequence[float], least: tuple[float, float]
) -> Points:
    """(bytes, us) of `least`, which stays as it is, and of every size: they rise.

    Begins with a time a kernel and a rate, the line that fits best. Then each step's measured over
    predicted time goes to the knots that its kernels meet, in the parts that they have in it, and
    from each knot to its neighbours, so that what no step tells apart stays even.
    """
    line = _line(readings)
    points = [least, *((size, max(_LEAST_US, line[0] + line[1] * size)) for size in sizes)]
    for _ in range(_ROUNDS):
        changes = _even(_even(_changes(readings, points)))
        moved = [us * exp(change) for (_, us), change in zip(points[1:], changes, strict=True)]
        points = [least, *_rising(sizes, moved, least[1])]
    return points


def _line(readings: Sequence[Reading]) -> tuple[float, float]:
    """(us a kernel, us a byte), neither below 0: least squares of relative differences."""
    rows = [
        (sum(count for _, count in one.kernels) / one.us,
         sum(size * count for size, count in one.kernels) / one.us)
        for one in readings
    ]  # fmt: skip
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in (
        [(a, a) for a, _ in rows], rows, [(b, b) for _, b in rows]))  # fmt: skip
    a, b = sum(a for a, _ in rows), sum(b for _, b in rows)
    apart = aa * bb - ab * ab
    if len(rows) > 1 and apart > 1e-9 * aa * bb:
        each, slope = (a * bb - b * ab) / apart, (b * aa - a * ab) / apart
        if each >= 0 and slope >= 0:
            return each, slope
    return 0.0, b / bb


def _changes(readings: Sequence[Reading], points: Points) -> list[float]:
    """By knot but the first: the mean of log(measured / predicted) of the steps that meet it."""
    wanted, parts = [0.0] * len(points), [0.0] * len(points)
    for reading in readings:
        met = [(at, count * weight * points[at][1]) for size, count in reading.kernels
               for at, weight in _weights(points, size)]  # fmt: skip
        predicted = sum(us for _, us in met)
        ratio = log(reading.us / max(predicted, _LEAST_US))
        for at, us in met:
            wanted[at] += us / predicted * ratio
            parts[at] += us / predicted
    mean = [want / part if part > 0 else 0.0 for want, part in zip(wanted, parts, strict=True)]
    return mean[1:]


def _weights(points: Points, size: float) -> Iterator[tuple[int, float]]:
    """The knots that a kernel's time comes from, and how much of each: beyond the last one, of the
    last two."""
    if size <= points[0][0]:
        yield 0, 1.0
        return
    above = next((at for at, point in enumerate(points) if point[0] >= size), len(points) - 1)
    low, high = points[above - 1][0], points[above][0]
    place = (size - low) / (high - low)
    yield above - 1, 1 - place
    yield above, place


def _even(changes: Sequence[float]) -> list[float]:
    """Each with a quarter of its neighbours'; an end is its own neighbour."""
    around = [changes[0], *changes, changes[-1]]
    return [(around[at] + 2 * around[at + 1] + around[at + 2]) / 4 for at in range(len(changes))]


def _rising(sizes: Sequence[float], times: Sequence[float], least: float) -> Points:
    """None below one before it."""
    points: Points = []
    for size, us in zip(sizes, times, strict=True):
        least = max(least, us)
        points.append((size, least))
    return points
