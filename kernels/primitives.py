"""Functions that all kernels share, compiled once and called by the addresses in STEP.

STEP has a field of the name of each. `code` is a format of formats.py; what has none is float32.
"""

from typing import Any

import numpy as np
from numba import types

from plancc.kernels import lanes, panels
from plancc.kernels.address import by_address, ints, load_f32, store_f32, store_u16
from plancc.kernels.compile import Function, function
from plancc.kernels.formats import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    bfloat16_bits,
    bits_float,
    from_half,
    to_half,
)
from plancc.kernels.functions import exp_f32

_SIXTEEN = np.uint32(16)

dot = by_address(types.float32, *ints(4))
row_dots = by_address(types.void, *ints(7))
tile_dots = by_address(types.void, *ints(7))
widen = by_address(types.void, *ints(4))
narrow = by_address(types.void, *ints(4))
round_to = by_address(types.void, *ints(3))
add_rows = by_address(types.void, *ints(7))
exp_minus = by_address(types.float32, *ints(2), types.float32)
product = by_address(types.void, *ints(9))


@function("float32(int64, int64, int64, int64)")
def _dot(numbers: Any, row: Any, count: Any, code: Any) -> Any:
    """lanes.dot."""
    return lanes.dot(numbers, row, count, code)


@function("void(int64, int64, int64, int64, int64, int64, int64)")
def _row_dots(
    rows: Any, stride: Any, num_rows: Any, row: Any, count: Any, code: Any, out: Any
) -> None:
    """lanes.row_dots."""
    lanes.row_dots(rows, stride, num_rows, row, count, code, out)


@function("void(int64, int64, int64, int64, int64, int64, int64)")
def _tile_dots(
    numbers: Any, row: Any, bounds: Any, num_tiles: Any, code: Any, out: Any, stride: Any
) -> None:
    """lanes.tile_dots."""
    lanes.tile_dots(numbers, row, bounds, num_tiles, code, out, stride)


@function("void(int64, int64, int64, int64)")
def _widen(numbers: Any, code: Any, count: Any, out: Any) -> None:
    """lanes.widen."""
    lanes.widen(numbers, code, count, out)


@function("void(int64, int64, int64, int64)")
def _narrow(row: Any, count: Any, out: Any, code: Any) -> None:
    """The numbers of a row rounded to a format, to nearest, ties to even."""
    if code == FLOAT32:
        for i in range(count):
            store_f32(out, i, load_f32(row, i))
    elif code == BFLOAT16:
        for i in range(count):
            store_u16(out, i, np.uint16(bfloat16_bits(load_f32(row, i)) >> _SIXTEEN))
    else:
        for i in range(count):
            store_u16(out, i, to_half(load_f32(row, i)))


@function("void(int64, int64, int64)")
def _round_to(row: Any, count: Any, code: Any) -> None:
    """The numbers of a row rounded to a format, in place, still float32."""
    if code == BFLOAT16:
        for i in range(count):
            store_f32(row, i, bits_float(bfloat16_bits(load_f32(row, i))))
    elif code == FLOAT16:
        for i in range(count):
            store_f32(row, i, from_half(to_half(load_f32(row, i))))


@function("void(int64, int64, int64, int64, int64, int64, int64)")
def _add_rows(
    rows: Any, stride: Any, code: Any, factors: Any, count: Any, out: Any, width: Any
) -> None:
    """lanes.add_rows."""
    lanes.add_rows(rows, stride, code, factors, count, out, width)


@function("float32(int64, int64, float32)")
def _exp_minus(row: Any, count: Any, shift: Any) -> Any:
    """exp(number - shift) in place; returns their sum, in the order of lanes.total."""
    for i in range(count):
        store_f32(row, i, exp_f32(load_f32(row, i) - shift))
    return lanes.total(row, count)


@function("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def _product(
    matrix: Any, num_rows: Any, row_stride: Any, k_stride: Any, x: Any, count: Any, out: Any,
    out_stride: Any, add: Any,
) -> None:  # fmt: skip
    """panels.panel_R over any number of rows of a float32 matrix."""
    row = 0
    while row + 6 <= num_rows:
        panels.panel_6(matrix + 4 * row * row_stride, row_stride, k_stride, x, count,
                      out + 4 * row * out_stride, out_stride, add)  # fmt: skip
        row += 6
    if row + 4 <= num_rows:
        panels.panel_4(matrix + 4 * row * row_stride, row_stride, k_stride, x, count,
                      out + 4 * row * out_stride, out_stride, add)  # fmt: skip
        row += 4
    while row < num_rows:
        panels.panel_1(matrix + 4 * row * row_stride, row_stride, k_stride, x, count,
                      out + 4 * row * out_stride, out_stride, add)  # fmt: skip
        row += 1


PRIMITIVES: dict[str, Function] = {
    "dot": _dot,
    "row_dots": _row_dots,
    "tile_dots": _tile_dots,
    "widen": _widen,
    "narrow": _narrow,
    "round_to": _round_to,
    "add_rows": _add_rows,
    "exp_minus": _exp_minus,
    "product": _product,
}
"""Each by the name of its field in STEP."""
