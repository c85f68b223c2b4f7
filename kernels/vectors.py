"""Vectors of float32 in explicit LLVM: loads from any format, stores, fused multiply-adds."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils

from plancc.kernels.address import F32, I8, I16, I32, I64, call_llvm, pointer
from plancc.kernels.formats import BFLOAT16, FLOAT16, FLOAT32, FORMAT_BYTES

cgutils: Any = _cgutils

LANES = 32
AHEAD_BYTES = 1024  # measured: without it 16-bit formats reach 4/5 of the read rate


def vector(lanes: int, element: ir.Type = F32) -> ir.Type:
    """The type of `lanes` numbers."""
    return ir.VectorType(element, lanes)


def zeros(lanes: int) -> ir.Value:
    """A constant of zeros."""
    return ir.Constant(vector(lanes), [0.0] * lanes)


def splat(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """One number in every lane."""
    one = b.insert_element(ir.Constant(vector(lanes), ir.Undefined), value, I32(0))
    return b.shuffle_vector(one, one, ir.Constant(vector(lanes, I32), [0] * lanes))


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value, lanes: int) -> ir.Value:
    """x * y + z, rounded once."""
    return call_llvm(b, f"llvm.fma.v{lanes}f32", vector(lanes), [x, y, z])


def load(b: ir.IRBuilder, address: ir.Value, index: ir.Value, lanes: int, code: int) -> ir.Value:
    """`lanes` numbers of a format from element `index` on, as float32; exact."""
    element = F32 if code == FLOAT32 else I16
    place = pointer(b, address, element, index)
    raw = b.load(b.bitcast(place, vector(lanes, element).as_pointer()), align=FORMAT_BYTES[code])
    if code == FLOAT32:
        return raw
    if code == FLOAT16:
        return b.fpext(b.bitcast(raw, vector(lanes, ir.HalfType())), vector(lanes))
    wide = b.zext(raw, vector(lanes, I32))
    high = b.shl(wide, ir.Constant(vector(lanes, I32), [16] * lanes))
    return b.bitcast(high, vector(lanes))


def store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, index: ir.Value) -> None:
    """Store float32 lanes from element `index` on."""
    b.store(value, b.bitcast(pointer(b, address, F32, index), value.type.as_pointer()), align=4)


def prefetch(
    b: ir.IRBuilder, address: ir.Value, index: ir.Value, code: int, ahead_bytes: ir.Value
) -> None:
    """Ask for the LANES numbers so far ahead of element `index`."""
    size = FORMAT_BYTES[code]
    for line in range(0, LANES * size, 64):
        ahead = b.add(b.add(b.mul(index, I64(size)), ahead_bytes), I64(line))
        place = pointer(b, address, I8, ahead)
        call_llvm(b, "llvm.prefetch.p0", ir.VoidType(), [place, I32(0), I32(3), I32(1)])


def rows_ahead(b: ir.IRBuilder, row_bytes: ir.Value, stride: ir.Value) -> ir.Value:
    """AHEAD_BYTES of rows that have gaps between them, so that no gap is fetched."""
    is_short = b.icmp_signed("<", row_bytes, I64(AHEAD_BYTES))
    rows = b.udiv(I64(AHEAD_BYTES), b.select(is_short, row_bytes, I64(AHEAD_BYTES)))
    return b.select(is_short, b.mul(rows, stride), I64(AHEAD_BYTES))


def by_format(b: ir.IRBuilder, code: ir.Value, emit: Callable[[int], None]) -> None:
    """Emit the code of every format, chosen at run time: a branch, not a compilation each."""
    for known in (FLOAT32, BFLOAT16, FLOAT16):
        with b.if_then(b.icmp_signed("==", code, I64(known))):
            emit(known)
