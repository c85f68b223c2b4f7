"""Bytes in words and numbers; 1 GiB = 2**30 bytes, 1 GB = 10**9 bytes."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_FACTORS = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: object) -> int:
    """Whole bytes of 1024, "22.5 GiB" or "300MiB". Raises ValueError naming what it saw.

    A fraction of a byte is rounded down, so that a budget never grows by being read.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected bytes such as 1048576 or '1 MiB', found {value!r}")
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"expected whole bytes, found {value!r}")
        return int(value)
    match = _SIZE.fullmatch(value)
    unit = match.group(2).upper() if match else ""
    if not match or (unit or "B") not in _FACTORS:
        raise ValueError(f"expected bytes such as '22.5 GiB' or '300 MiB', found {value!r}")
    if not unit and not match.group(1).isdigit():
        raise ValueError(f"expected a unit such as GiB, found {value!r}")
    return int(float(match.group(1)) * _FACTORS[unit]) if unit else int(match.group(1))


def _parse(value: Any) -> int:
    return parse_bytes(value)


_Text = Annotated[str, Field(pattern=r"^\s*[0-9]+(\.[0-9]+)?\s*([KMGT]i?)?B?\s*$")]

Bytes = Annotated[
    int,
    BeforeValidator(_parse, json_schema_input_type=Annotated[int, Field(ge=0)] | _Text),
    Field(ge=0),
]
"""A byte count, 0 or more; reads integers and strings with a unit."""

PositiveBytes = Annotated[
    int,
    BeforeValidator(_parse, json_schema_input_type=Annotated[int, Field(gt=0)] | _Text),
    Field(gt=0),
]
"""A byte count of at least 1."""


def format_bytes(num_bytes: int) -> str:
    """Bytes for people, in binary units: '513.3 MiB', '22.50 GiB'."""
    sign, size = ("-" if num_bytes < 0 else ""), abs(num_bytes)
    if size >= 2**30:
        return f"{sign}{size / 2**30:.2f} GiB"
    if size >= 2**20:
        return f"{sign}{size / 2**20:.1f} MiB"
    if size >= 2**10:
        return f"{sign}{size / 2**10:.1f} KiB"
    return f"{sign}{size} B"


def format_ns(time_ns: int) -> str:
    """Nanoseconds for people: '27.4 ms', '38.0 us'."""
    if abs(time_ns) >= 10**9:
        return f"{time_ns / 10**9:.2f} s"
    if abs(time_ns) >= 10**6:
        return f"{time_ns / 10**6:.2f} ms"
    return f"{time_ns / 10**3:.1f} us"
