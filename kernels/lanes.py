"""Vector loops in explicit LLVM, so that the order of every sum is the source's, not the CPU's.

An auto-vectorised sum depends on the width of the vectors, and a library's on the number of rows:
two hosts would differ. Here a sum has LANES partial sums, whatever the CPU splits them into, each
a chain of fused multiply-adds, and one fixed tree at its end.
"""

from llvmlite import ir
from numba import types

from plancc.kernels.address import F32, I32, I64, ints, pointer, simple
from plancc.kernels.formats import FLOAT32, FORMAT_BYTES
from plancc.kernels.vectors import (
    AHEAD_BYTES,
    LANES,
    by_format,
    cgutils,
    fma,
    load,
    prefetch,
    rows_ahead,
    splat,
    store,
    vector,
    zeros,
)

_TILE_AHEAD_BYTES = 2048  # tiles take longer: each ends with a tree
_CHUNKS = (32, 8, 1)


def _tree_sum(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The upper half added to the lower one, until one lane is left."""
    while lanes > 1:
        half = lanes // 2
        low, high = (
            ir.Constant(vector(half, I32), list(range(first, first + half))) for first in (0, half)
        )
        value = b.fadd(b.shuffle_vector(value, value, low), b.shuffle_vector(value, value, high))
        lanes = half
    return b.extract_element(value, I32(0))


def _dot_of(
    b: ir.IRBuilder, weights: ir.Value, row: ir.Value, count: ir.Value, known: int,
    places: tuple[ir.Value, ir.Value], ahead_bytes: ir.Value,
) -> ir.Value:  # fmt: skip
    """The value of `dot` for a format known now. `places` keep a vector of LANES and one of 1
    from block to block; LLVM makes them registers."""
    whole = b.and_(count, I64(-LANES))
    for first, end, lanes, place in zip((I64(0), whole), (whole, count), (LANES, 1), places,
                                        strict=True):  # fmt: skip
        b.store(zeros(lanes), place)
        with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
            if lanes > 1:
                prefetch(b, weights, index, known, ahead_bytes)
            w, x = load(b, weights, index, lanes, known), load(b, row, index, lanes, FLOAT32)
            b.store(fma(b, w, x, b.load(place), lanes), place)
    sums, tail = (b.load(place) for place in places)
    return b.fadd(_tree_sum(b, sums, LANES), b.extract_element(tail, I32(0)))


def _dot_places(b: ir.IRBuilder) -> tuple[ir.Value, ir.Value]:
    return cgutils.alloca_once(b, vector(LANES)), cgutils.alloca_once(b, vector(1))


def _emit_dot(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    weights, row, count, code = a
    places, found = _dot_places(b), cgutils.alloca_once(b, F32)
    b.store(ir.Constant(F32, 0.0), found)

    def emit(known: int) -> None:
        b.store(_dot_of(b, weights, row, count, known, places, I64(AHEAD_BYTES)), found)

    by_format(b, code, emit)
    return b.load(found)


dot = simple(types.float32(*ints(4)), _emit_dot)
"""dot(weights, row, count, code): sum of products of `count` numbers of a format with float32.

Lane i of LANES sums the elements i, i + LANES, ... in turn; lanes are added as a tree; what is
left of a multiple of LANES is one more chain, added last.
"""


def _emit_row_dots(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    rows, stride, num_rows, row, count, code, out = a
    places = _dot_places(b)

    def emit(known: int) -> None:
        ahead = rows_ahead(b, b.mul(count, I64(FORMAT_BYTES[known])), stride)
        with cgutils.for_range(b, num_rows) as loop:
            here = b.add(rows, b.mul(loop.index, stride))
            value = _dot_of(b, here, row, count, known, places, ahead)
            b.store(value, pointer(b, out, F32, loop.index))

    by_format(b, code, emit)


row_dots = simple(types.void(*ints(7)), _emit_row_dots)
"""row_dots(rows, stride, num_rows, row, count, code, out): `dot` of rows `stride` bytes apart."""


def _emit_tile_dots(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    weights, row, bounds, num_tiles, code, out, stride = a
    places = _dot_places(b)

    def emit(known: int) -> None:
        with cgutils.for_range(b, num_tiles) as loop:
            first = b.load(pointer(b, bounds, I64, loop.index))
            end = b.load(pointer(b, bounds, I64, b.add(loop.index, I64(1))))
            here = b.add(weights, b.mul(first, I64(FORMAT_BYTES[known])))
            x = b.add(row, b.mul(first, I64(4)))
            count = b.sub(end, first)
            value = _dot_of(b, here, x, count, known, places, I64(_TILE_AHEAD_BYTES))
            b.store(value, pointer(b, out, F32, b.mul(loop.index, stride)))

    by_format(b, code, emit)


tile_dots = simple(types.void(*ints(7)), _emit_tile_dots)
"""tile_dots(weights, row, bounds, num_tiles, code, out, stride): `dot` of each run of columns.

Tile t is columns [bounds[t], bounds[t + 1]); its sum goes to out[t * stride].
"""


def _emit_total(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    numbers, count = a
    whole = b.and_(count, I64(-LANES))
    sums, tail = cgutils.alloca_once(b, vector(LANES)), cgutils.alloca_once(b, vector(1))
    b.store(zeros(LANES), sums)
    b.store(zeros(1), tail)
    for first, end, lanes, place in ((I64(0), whole, LANES, sums), (whole, count, 1, tail)):
        with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
            b.store(b.fadd(b.load(place), load(b, numbers, index, lanes, FLOAT32)), place)
    return b.fadd(_tree_sum(b, b.load(sums), LANES), b.extract_element(b.load(tail), I32(0)))


total = simple(types.float32(*ints(2)), _emit_total)
"""total(numbers, count): their sum, in the order of `dot`."""


def _emit_widen(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    numbers, code, count, out = a

    def emit(known: int) -> None:
        first: ir.Value = I64(0)
        for lanes in _CHUNKS:
            end = b.and_(count, I64(-lanes))
            with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
                store(b, load(b, numbers, index, lanes, known), out, index)
            first = end

    by_format(b, code, emit)


widen = simple(types.void(*ints(4)), _emit_widen)
"""widen(numbers, code, count, out): the numbers of a format as float32."""


def _emit_add_rows(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    rows, stride, code, factors, count, out, width = a

    def columns(first: ir.Value, lanes: int, known: int) -> None:
        row_bytes, stride_bytes = (b.mul(n, I64(FORMAT_BYTES[known])) for n in (width, stride))
        ahead = rows_ahead(b, row_bytes, stride_bytes)
        place = cgutils.alloca_once(b, vector(lanes))
        b.store(load(b, out, first, lanes, FLOAT32), place)
        with cgutils.for_range(b, count) as loop:
            at = b.add(b.mul(loop.index, stride), first)
            if lanes == LANES:
                prefetch(b, rows, at, known, ahead)
            w = load(b, rows, at, lanes, known)
            factor = b.load(pointer(b, factors, F32, loop.index))
            b.store(fma(b, splat(b, factor, lanes), w, b.load(place), lanes), place)
        store(b, b.load(place), out, first)

    def emit(known: int) -> None:
        first: ir.Value = I64(0)
        for lanes in _CHUNKS:
            end = b.and_(width, I64(-lanes))
            with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
                columns(index, lanes, known)
            first = end

    by_format(b, code, emit)


add_rows = simple(types.void(*ints(7)), _emit_add_rows)
"""add_rows(rows, stride, code, factors, count, out, width): out += sum of factor x row, in order.

Each of the `width` float32 of `out` is one chain of fused multiply-adds, begun with what it holds.
"""
