"""The fit of a read curve: curves that are known come back, from sums over kernels alone."""

import random
from itertools import pairwise

import pytest

from plancc.executor.probe_fit import Points, Reading, fit_points
from plancc.ir.curve import Curve

MIB = 2**20
SIZES = tuple(MIB << power >> 1 for power in range(12))
LEAST, LAUNCH_US = (8192, 0.01), 2.4
HIDDEN = (512, 1024, 2048, 4096, 8192)
TRUTHS = {
    "a rate": [(8192, 0.01), (2**30, 240.0)],
    "a beginning and a rate": [(8192, 0.01), (MIB / 2, 1.3), (2**30, 240.0)],
    "slow while small": [(8192, 0.01), (MIB, 1.0), (4 * MIB, 2.4), (16 * MIB, 5.8),
                         (64 * MIB, 17.5), (256 * MIB, 60.0), (2**30, 236.0)],
    "a cache": [(8192, 0.01), (MIB, 1.0), (8 * MIB, 2.2), (16 * MIB, 3.6), (48 * MIB, 12.0),
                (2**30, 240.0)],
}  # fmt: skip


def model_sizes(hidden: int) -> list[float]:
    """qkv, o, gate and up, down of a model in two-byte numbers."""
    return [width * hidden**2 * 2 for width in (1.5, 1.0, 7.0, 3.5)]


def readings(truth: Curve, noise: float = 0.0, seed: int = 0) -> list[Reading]:
    """Of layers of every width, and of two heads."""
    rng = random.Random(seed)
    kernels = [tuple((size, 40) for size in model_sizes(hidden)) for hidden in HIDDEN]
    kernels += [((131072 * hidden * 2.0, 1),) for hidden in (2048, 4096)]
    return [Reading(row, us_of(truth, row) * (1 + rng.uniform(-noise, noise))) for row in kernels]


def us_of(curve: Curve, kernels: tuple[tuple[float, int], ...]) -> float:
    return sum(count * curve.us(size) for size, count in kernels)


def off(points: Points, truth: Curve, sizes: list[float]) -> float:
    """Of a step over such kernels, launches too."""
    found, wanted = (sum(LAUNCH_US + curve.us(size) for size in sizes)
                     for curve in (Curve(points), truth))  # fmt: skip
    return abs(found / wanted - 1)


@pytest.mark.parametrize("name", TRUTHS)
def test_mixtures_of_kernels_take_what_the_true_curve_says(name: str) -> None:
    truth, rng = Curve(TRUTHS[name]), random.Random(name)
    points = fit_points(readings(truth), SIZES, LEAST)
    for _ in range(50):
        hidden = rng.randrange(1024, 8192, 256)
        sizes = [size * rng.uniform(0.9, 1.1) for size in model_sizes(hidden)]
        assert off(points, truth, sizes) < 0.02, hidden


@pytest.mark.parametrize("name", TRUTHS)
def test_every_measured_step_comes_out_as_it_was(name: str) -> None:
    truth = Curve(TRUTHS[name])
    points = fit_points(readings(truth), SIZES, LEAST)
    for reading in readings(truth):
        assert us_of(Curve(points), reading.kernels) == pytest.approx(reading.us, rel=0.002)


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_step_stays_as_small_as_it_was(seed: int) -> None:
    truth = Curve(TRUTHS["slow while small"])
    points = fit_points(readings(truth, noise=0.01, seed=seed), SIZES, LEAST)
    for hidden in range(1024, 8192, 512):
        assert off(points, truth, model_sizes(hidden)) < 0.03


@pytest.mark.parametrize("seed", range(20))
def test_points_rise_whatever_was_measured(seed: int) -> None:
    rng = random.Random(seed)
    truth = [Reading(one.kernels, one.us * rng.uniform(0.2, 5))
             for one in readings(Curve(TRUTHS["a rate"]))]  # fmt: skip
    points = fit_points(truth, SIZES, LEAST)
    assert [size for size, _ in points] == [LEAST[0], *SIZES]
    assert points[0] == LEAST
    assert all(0 < us <= more for (_, us), (_, more) in pairwise(points))


def test_one_step_alone_is_a_rate() -> None:
    (reading,) = [Reading(((4.0 * MIB, 10), (8.0 * MIB, 10)), 120.0)]
    points = fit_points([reading], SIZES[:6], LEAST)
    assert us_of(Curve(points), reading.kernels) == pytest.approx(120.0, rel=0.001)


def test_the_same_steps_give_the_same_points() -> None:
    truth = readings(Curve(TRUTHS["a cache"]), noise=0.01)
    assert fit_points(truth, SIZES, LEAST) == fit_points(truth, SIZES, LEAST)
