"""Measured curves: through their points, straight between, never faster for more bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from plancc.ir.curve import Curve, Points

POINTS = (
    st.lists(
        st.tuples(st.integers(1, 10**9), st.floats(0.1, 1e6)), min_size=1, max_size=6,
        unique_by=lambda point: point[0],
    ).map(sorted)
)  # fmt: skip


@settings(max_examples=60)
@given(POINTS)
def test_a_curve_passes_through_its_points(points: list[tuple[int, float]]) -> None:
    for size, value in points:
        assert Curve(points).us(size) == pytest.approx(value)


def test_between_points_it_is_linear() -> None:
    assert Curve([(100, 10.0), (300, 30.0)]).us(150) == pytest.approx(15.0)


def test_below_the_first_point_its_value_holds() -> None:
    assert Curve([(100, 10.0), (300, 30.0)]).us(1) == 10.0


def test_beyond_the_last_point_the_slope_goes_on() -> None:
    assert Curve([(100, 10.0), (300, 30.0)]).us(1000) == pytest.approx(100.0)


@settings(max_examples=60)
@given(POINTS, st.integers(1, 10**10))
def test_beyond_the_last_point_more_bytes_are_never_faster(
    points: list[tuple[int, float]], extra: int
) -> None:
    last, value = points[-1]
    assert Curve(points).us(last + extra) >= value * (1 - 1e-12)


def test_one_point_alone_is_a_rate() -> None:
    curve = Curve([(1000, 4.0)])
    assert (curve.us(500), curve.us(1000), curve.us(3000)) == (4.0, 4.0, 12.0)


def test_nothing_takes_no_time() -> None:
    assert Curve([(100, 10.0)]).ns(0) == 0


def test_a_rate_of_one_gb_s_moves_a_thousand_bytes_a_us() -> None:
    curve = Curve.from_rate(1.0, latency_us=5.0)
    assert curve.ns(10_000) == 15_000


def test_nanoseconds_are_rounded_up() -> None:
    assert Curve([(1, 0.0001)]).ns(1) == 1


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(10, 1.0), (10, 2.0)],
        [(10, 1.0), (5, 2.0)],
        [(0, 1.0)],
        [(10, 0.0)],
        [(10, -1.0)],
        [(10, float("inf"))],
    ],
)
def test_points_that_cannot_be_measured_are_refused(points: list[tuple[float, float]]) -> None:
    from plancc.ir.document import Frozen

    class Holder(Frozen):
        points: Points

    with pytest.raises(ValidationError):
        TypeAdapter(Holder).validate_python({"points": points})
