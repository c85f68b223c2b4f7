"""Vector loops in explicit LLVM, so that the order of every sum is the source's, not the CPU's.

An auto-vectorised sum depends on the width of the vectors, and a library's on the number of rows:
two hosts would differ. Here a sum has LANES partial sums, whatever the CPU splits them into, each
a chain of fused multiply-adds, and one fixed tree at its end.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils

from plancc.kernels.address import F32, I8, I16, I32, I64, call_llvm, ints, pointer, simple
from plancc.kernels.compile import kernel
from plancc.kernels.formats import BFLOAT16, FLOAT16, FLOAT32, FORMAT_BYTES

cgutils: Any = _cgutils

LANES = 32
GROUP_ROWS = 16  # prompt rows that the vectors of a panel product hold
PANEL_ROWS = 6  # matrix rows of one: 6 x 16 sums fill the 16 vector registers of AVX2
_AHEAD_BYTES = 1024  # hardware prefetch alone reaches 4/5 of the read rate in 16-bit formats
_CHUNKS = (32, 8, 1)


@kernel
def num_groups_of(step: Any) -> Any:
    """Groups that a prompt step's rows fill, the last perhaps in part."""
    return (step.num_rows + GROUP_ROWS - 1) // GROUP_ROWS


def _vector(lanes: int, element: ir.Type = F32) -> ir.Type:
    return ir.VectorType(element, lanes)


def _zeros(lanes: int) -> ir.Value:
    return ir.Constant(_vector(lanes), [0.0] * lanes)


def _splat(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    one = b.insert_element(ir.Constant(_vector(lanes), ir.Undefined), value, I32(0))
    return b.shuffle_vector(one, one, ir.Constant(_vector(lanes, I32), [0] * lanes))


def _fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value, lanes: int) -> ir.Value:
    return call_llvm(b, f"llvm.fma.v{lanes}f32", _vector(lanes), [x, y, z])


def _load(b: ir.IRBuilder, address: ir.Value, index: ir.Value, lanes: int, code: int) -> ir.Value:
    """`lanes` numbers of a format from element `index` on, as float32; exact."""
    element = F32 if code == FLOAT32 else I16
    place = pointer(b, address, element, index)
    raw = b.load(b.bitcast(place, _vector(lanes, element).as_pointer()), align=FORMAT_BYTES[code])
    if code == FLOAT32:
        return raw
    if code == FLOAT16:
        return b.fpext(b.bitcast(raw, _vector(lanes, ir.HalfType())), _vector(lanes))
    wide = b.zext(raw, _vector(lanes, I32))
    high = b.shl(wide, ir.Constant(_vector(lanes, I32), [16] * lanes))
    return b.bitcast(high, _vector(lanes))


def _store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, index: ir.Value) -> None:
    b.store(value, b.bitcast(pointer(b, address, F32, index), value.type.as_pointer()), align=4)


def _prefetch(b: ir.IRBuilder, address: ir.Value, index: ir.Value, code: int) -> None:
    size = FORMAT_BYTES[code]
    for line in range(0, LANES * size, 64):
        ahead = b.add(b.mul(index, I64(size)), I64(_AHEAD_BYTES + line))
        place = pointer(b, address, I8, ahead)
        call_llvm(b, "llvm.prefetch.p0", ir.VoidType(), [place, I32(0), I32(3), I32(1)])


def _tree_sum(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """The upper half added to the lower one, until one lane is left."""
    while lanes > 1:
        half = lanes // 2
        low, high = (
            ir.Constant(_vector(half, I32), list(range(first, first + half))) for first in (0, half)
        )
        value = b.fadd(b.shuffle_vector(value, value, low), b.shuffle_vector(value, value, high))
        lanes = half
    return b.extract_element(value, I32(0))


def _by_format(b: ir.IRBuilder, code: ir.Value, emit: Callable[[int], None]) -> None:
    for known in (FLOAT32, BFLOAT16, FLOAT16):
        with b.if_then(b.icmp_signed("==", code, I64(known))):
            emit(known)


def _emit_dot(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    weights, row, count, code = a
    whole = b.and_(count, I64(-LANES))
    sums, tail = cgutils.alloca_once(b, _vector(LANES)), cgutils.alloca_once(b, _vector(1))
    b.store(_zeros(LANES), sums)
    b.store(_zeros(1), tail)

    def chain(first: ir.Value, end: ir.Value, lanes: int, place: ir.Value, known: int) -> None:
        with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
            if lanes > 1:
                _prefetch(b, weights, index, known)
            w, x = _load(b, weights, index, lanes, known), _load(b, row, index, lanes, FLOAT32)
            b.store(_fma(b, w, x, b.load(place), lanes), place)

    def emit(known: int) -> None:
        chain(I64(0), whole, LANES, sums, known)
        chain(whole, count, 1, tail, known)

    _by_format(b, code, emit)
    return b.fadd(_tree_sum(b, b.load(sums), LANES), b.extract_element(b.load(tail), I32(0)))


dot = simple(types.float32(*ints(4)), _emit_dot)
"""dot(weights, row, count, code): sum of products of `count` numbers of a format with float32.

Lane i of LANES sums the elements i, i + LANES, ... in turn; lanes are added as a tree; what is
left of a multiple of LANES is one more chain, added last.
"""


def _emit_total(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    numbers, count = a
    whole = b.and_(count, I64(-LANES))
    sums, tail = cgutils.alloca_once(b, _vector(LANES)), cgutils.alloca_once(b, _vector(1))
    b.store(_zeros(LANES), sums)
    b.store(_zeros(1), tail)
    for first, end, lanes, place in ((I64(0), whole, LANES, sums), (whole, count, 1, tail)):
        with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
            b.store(b.fadd(b.load(place), _load(b, numbers, index, lanes, FLOAT32)), place)
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
                _store(b, _load(b, numbers, index, lanes, known), out, index)
            first = end

    _by_format(b, code, emit)


widen = simple(types.void(*ints(4)), _emit_widen)
"""widen(numbers, code, count, out): the numbers of a format as float32."""


def _emit_add_rows(b: ir.IRBuilder, a: list[ir.Value]) -> None:
    rows, stride, code, factors, count, out, width = a

    def columns(first: ir.Value, lanes: int, known: int) -> None:
        place = cgutils.alloca_once(b, _vector(lanes))
        b.store(_load(b, out, first, lanes, FLOAT32), place)
        with cgutils.for_range(b, count) as loop:
            w = _load(b, rows, b.add(b.mul(loop.index, stride), first), lanes, known)
            factor = b.load(pointer(b, factors, F32, loop.index))
            b.store(_fma(b, _splat(b, factor, lanes), w, b.load(place), lanes), place)
        _store(b, b.load(place), out, first)

    def emit(known: int) -> None:
        first: ir.Value = I64(0)
        for lanes in _CHUNKS:
            end = b.and_(width, I64(-lanes))
            with cgutils.for_range_slice(b, first, end, I64(lanes)) as (index, _):
                columns(index, lanes, known)
            first = end

    _by_format(b, code, emit)


add_rows = simple(types.void(*ints(7)), _emit_add_rows)
"""add_rows(rows, stride, code, factors, count, out, width): out += sum of factor x row, in order.

Each of the `width` float32 of `out` is one chain of fused multiply-adds, begun with what it holds.
"""


def _panel(rows: int) -> Callable[..., Any]:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        matrix, row_stride, k_stride, x, count, out, out_stride, add = a
        sums = [cgutils.alloca_once(b, _vector(GROUP_ROWS)) for _ in range(rows)]
        for place in sums:
            b.store(_zeros(GROUP_ROWS), place)
        with cgutils.for_range(b, count) as loop:
            column = _load(b, x, b.mul(loop.index, I64(GROUP_ROWS)), GROUP_ROWS, FLOAT32)
            here = b.mul(loop.index, k_stride)
            for row, place in enumerate(sums):
                at = b.add(b.mul(row_stride, I64(row)), here)
                w = _splat(b, b.load(pointer(b, matrix, F32, at)), GROUP_ROWS)
                b.store(_fma(b, w, column, b.load(place), GROUP_ROWS), place)
        for row, place in enumerate(sums):
            at = b.mul(out_stride, I64(row))
            before = _load(b, out, at, GROUP_ROWS, FLOAT32)
            after = b.fadd(before, b.load(place))
            is_sum = b.icmp_signed("!=", add, I64(0))
            _store(b, b.select(is_sum, after, b.load(place)), out, at)

    return simple(types.void(*ints(8)), emit)


panel_6, panel_4, panel_1 = _panel(PANEL_ROWS), _panel(4), _panel(1)
"""panel_R(matrix, row_stride, k_stride, x, count, out, out_stride, add).

R rows of a float32 matrix times `count` columns of x, [count, GROUP_ROWS]: each sum is one chain of
fused multiply-adds in order of k. `add`: the sums are added to what `out` holds, else written.
"""
