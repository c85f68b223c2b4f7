"""A group's row of a topology: fields that came later say nothing where they are absent."""

import pytest
from plancc_builders import build_device, build_topology
from pydantic import ValidationError

from plancc.ir.exchange import Exchange

PAIR = ("d0", "d1")
PLAIN = Exchange(group=PAIR, points=((64, 10.0), (4096, 20.0)))


def digest_of(row: Exchange) -> str:
    devices = [build_device(name, 10**9, gb_s=8.0) for name in PAIR]
    return build_topology(devices, exchanges=(row,)).digest()


def test_a_row_from_before_is_told_and_digested_as_it_was() -> None:
    assert set(PLAIN.model_dump()) == {"group", "points"}
    assert PLAIN.at_once_ns(12345) == 12345
    owned = PLAIN.model_copy(update={"owned_points": PLAIN.points})
    slowed = PLAIN.model_copy(update={"slowdown": 1.1})
    assert len({digest_of(row) for row in (PLAIN, owned, slowed)}) == 3
    assert Exchange.model_validate(slowed.model_dump()) == slowed


def test_rows_there_and_back_are_half_of_each_as_many_both_ways_rounded_up() -> None:
    row = PLAIN.model_copy(update={"owned_points": ((64, 10.001), (4096, 20.0))})
    assert row.owned_ns(1, 1) == 10_001
    assert row.owned_ns(1, 4096) == 15_001
    assert PLAIN.curve().ns(4096) == 20_000


def test_computing_at_once_is_slowed_in_thousandths_and_rounded_up() -> None:
    row = PLAIN.model_copy(update={"slowdown": 1.2504})
    assert (row.at_once_ns(1000), row.at_once_ns(1001)) == (1250, 1252)


def test_nobody_computes_faster_at_once() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Exchange(group=PAIR, points=PLAIN.points, slowdown=0.9)
