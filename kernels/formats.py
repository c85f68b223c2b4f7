"""Number formats chosen at run time by code. Arithmetic is float32; a format only rounds."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from plancc.kernels.address import F32, I16, I32, I64, load_f32, load_u16, simple
from plancc.kernels.compile import kernel

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
FORMAT_CODES = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
FORMAT_BYTES = (4, 2, 2)

_HALF = ir.HalfType()
_SIXTEEN, _LOW_HALF, _ONE = np.uint32(16), np.uint32(0x7FFF), np.uint32(1)
_UPPER, _QUIET = np.uint32(0xFFFF0000), np.uint32(0x00400000)


def _emit_to_half(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.bitcast(b.fptrunc(a[0], _HALF), I16)


def _emit_from_half(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.fpext(b.bitcast(a[0], _HALF), F32)


float_bits = simple(types.uint32(types.float32), lambda b, a: b.bitcast(a[0], I32))
bits_float = simple(types.float32(types.uint32), lambda b, a: b.bitcast(a[0], F32))
to_half = simple(types.uint16(types.float32), _emit_to_half)
from_half = simple(types.float32(types.uint16), _emit_from_half)


def _emit_size(b: ir.IRBuilder, a: list[ir.Value]) -> ir.Value:
    return b.select(b.icmp_signed("==", a[0], I64(FLOAT32)), I64(4), I64(2))


size_of = simple(types.int64(types.int64), _emit_size)
"""Bytes of one number of a format."""


@kernel
def bfloat16_bits(value: Any) -> Any:
    """bfloat16 in the upper half of 32 bits: to nearest, ties to even; a NaN stays one."""
    bits = float_bits(value)
    if value != value:
        return (bits | _QUIET) & _UPPER
    odd = (bits >> _SIXTEEN) & _ONE
    return np.uint32(bits + _LOW_HALF + odd) & _UPPER


@kernel
def load_as(address: Any, index: Any, code: Any) -> Any:
    """Element `index` of the numbers at `address`, as float32; exact."""
    if code == FLOAT32:
        return load_f32(address, index)
    bits = load_u16(address, index)
    return bits_float(np.uint32(bits) << _SIXTEEN) if code == BFLOAT16 else from_half(bits)
