"""From rounds with and without each other to what a group's row of a topology says."""

import pytest

from plancc.executor.probe_losses import Rounds, exchange_of

NAMES, SIZES = ("cpu0", "cpu1"), (64, 8192)


def a_rank(alone_us: float = 1000.0, **fields: float | tuple[float, ...]) -> Rounds:
    whole = {"alone_us": alone_us, "long_alone_us": 8 * alone_us, "long_us": 9950.0,
             "together_us": (1200.0 + 350, 1200.0 + 500), "owned_us": (1400.0, 1380.0)}  # fmt: skip
    return Rounds.of(whole | fields)


def test_what_grows_with_computing_is_the_slowdown_and_the_rest_is_the_exchange() -> None:
    """Alone 1 and 8 ms; at once 1.2 times as long, and 350 us an exchange."""
    row = exchange_of(NAMES, SIZES, [a_rank(), a_rank()])
    assert row.slowdown == 1.2
    assert row.points == ((64, 350), (8192, 500))


def test_an_owner_computes_half_a_round_alone_and_half_with_the_others() -> None:
    row = exchange_of(NAMES, SIZES, [a_rank(), a_rank(owned_us=(1.0, 1.0))])
    assert row.owned_points == ((64, 280), (8192, 280))  # 1,400 and 1,380 less 500 + 600


def test_of_unequal_ranks_the_slowest_is_what_a_group_takes_alone() -> None:
    row = exchange_of(NAMES, SIZES, [a_rank(800.0), a_rank()])
    assert row.slowdown == 1.2
    assert row.points[0] == (64, 350)
    assert row.owned_points is not None
    assert row.owned_points[0] == (64, 1380 - 400 - 600)


def test_ranks_that_lose_nothing_have_no_slowdown_and_no_time_below_one_us() -> None:
    free = {"long_us": 7000.0, "together_us": (990.0, 1010.0), "owned_us": (900.0, 900.0)}
    row = exchange_of(NAMES, SIZES, [a_rank(**free), a_rank(**free)])
    assert (row.slowdown, row.points) == (1, ((64, 1), (8192, 10)))
    assert row.owned_points == ((64, 1), (8192, 1))


def test_turns_are_meant_and_travel_as_plain_data() -> None:
    mean = Rounds.mean([a_rank(1000.0), a_rank(2000.0, owned_us=(1500.0, 1580.0))])
    assert (mean.alone_us, mean.owned_us) == (1500, (1450, 1480))
    assert Rounds.of(mean.data()) == mean
    assert mean.long_alone_us == pytest.approx(12_000)
