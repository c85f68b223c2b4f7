"""Measured curves: points (bytes, microseconds), linear between them, the last slope beyond."""

import itertools
from collections.abc import Sequence
from math import ceil
from typing import Annotated, Self

from pydantic import AfterValidator, Field

Number = Annotated[float, Field(gt=0)]
Point = tuple[Number, Number]


def _ascending(points: tuple[Point, ...]) -> tuple[Point, ...]:
    if not points:
        raise ValueError("expected at least one point, found none")
    for before, after in itertools.pairwise(points):
        if after[0] <= before[0]:
            raise ValueError(f"expected ascending sizes, found {after[0]:g} after {before[0]:g}")
    return points


Points = Annotated[tuple[Point, ...], AfterValidator(_ascending)]
"""Measured (size, value) pairs in ascending order of size, all positive."""


class Curve:
    """Microseconds as a function of bytes.

    Below the first point the first value holds (a short transfer still costs its latency); beyond
    the last point the slope of the last pair goes on. One point alone means a rate: proportional.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self._points = tuple(points)

    @classmethod
    def from_rate(cls, gb_s: float, latency_us: float = 0.0) -> Self:
        """latency + bytes / rate, for files that give scalars; 1 GB/s is 1,000 bytes a us."""
        step = 1e9
        return cls(((0.0, latency_us), (step, latency_us + step / (gb_s * 1e3))))

    def us(self, size_bytes: float) -> float:
        points = self._points
        if size_bytes <= 0:
            return 0.0
        if len(points) == 1:
            return points[0][1] * max(size_bytes, points[0][0]) / points[0][0]
        if size_bytes <= points[0][0]:
            return points[0][1]
        index = next((i for i, p in enumerate(points) if p[0] >= size_bytes), len(points) - 1)
        (x0, y0), (x1, y1) = points[index - 1], points[index]
        slope = (y1 - y0) / (x1 - x0)
        if size_bytes > x1:  # more bytes are never faster, whatever noise the last pair holds
            return y1 + max(0.0, slope) * (size_bytes - x1)
        return y0 + slope * (size_bytes - x0)

    def ns(self, size_bytes: float) -> int:
        """Whole nanoseconds, rounded up: sums of terms are exact and alike everywhere."""
        return ceil(round(self.us(size_bytes) * 1e3, 3))
