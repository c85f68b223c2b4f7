"""Bytes in words and numbers; wrong units are refused with what was seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancc.ir.units import format_bytes, format_ns, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (1024, 1024),
        (4096.0, 4096),
        ("1024", 1024),
        ("22.5 GiB", 24159191040),
        ("300MiB", 314572800),
        ("  2 kib ", 2048),
        ("1 GB", 10**9),
        ("1.5 TB", 1500000000000),
        ("10 B", 10),
        ("0.1 KiB", 102),
    ],
)
def test_bytes_are_read_in_binary_and_decimal_units(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "12 Gb/s", "-1 GiB", "1.5", "one GiB", "1 GiB 2", 1.5, float("nan"),
     float("inf"), True, None, [1]],
)  # fmt: skip
def test_what_is_no_size_is_refused_and_shown(text: object) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        parse_bytes(text)
    assert repr(text) in str(error.value)


@given(st.integers(0, 2**50))
def test_written_bytes_are_within_half_a_last_digit(size: int) -> None:
    """What a person reads is what a machine would parse, to the digits shown."""
    assert abs(parse_bytes(format_bytes(size)) - size) <= max(1, size * 0.051)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (-(2**20), "-1.0 MiB"), (2**34, "16.00 GiB")],
)
def test_bytes_are_written_for_people(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("time_ns", "text"), [(380, "0.4 us"), (27_400_000, "27.40 ms"), (2_500_000_000, "2.50 s")]
)
def test_times_are_written_for_people(time_ns: int, text: str) -> None:
    assert format_ns(time_ns) == text
