"""A few matrix rows times 16 prompt rows, in explicit LLVM: the inner loop of all prompt products.

A vector holds one column of GROUP_ROWS prompt rows, and a number of the matrix is spread over it:
the matrix is read as it lies, and no sum ever mixes two prompt rows.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from plancc.kernels.address import F32, I64, ints, pointer, simple
from plancc.kernels.formats import FLOAT32
from plancc.kernels.vectors import cgutils, fma, load, splat, store, vector, zeros

GROUP_ROWS = 16
PANEL_ROWS = 6  # 6 x 16 sums fill 12 of the 16 vector registers of AVX2


def _panel(rows: int) -> Callable[..., Any]:
    def emit(b: ir.IRBuilder, a: list[ir.Value]) -> None:
        matrix, row_stride, k_stride, x, count, out, out_stride, add = a
        sums = [cgutils.alloca_once(b, vector(GROUP_ROWS)) for _ in range(rows)]
        for place in sums:
            b.store(zeros(GROUP_ROWS), place)
        with cgutils.for_range(b, count) as loop:
            column = load(b, x, b.mul(loop.index, I64(GROUP_ROWS)), GROUP_ROWS, FLOAT32)
            here = b.mul(loop.index, k_stride)
            for row, place in enumerate(sums):
                at = b.add(b.mul(row_stride, I64(row)), here)
                w = splat(b, b.load(pointer(b, matrix, F32, at)), GROUP_ROWS)
                b.store(fma(b, w, column, b.load(place), GROUP_ROWS), place)
        for row, place in enumerate(sums):
            at = b.mul(out_stride, I64(row))
            before = load(b, out, at, GROUP_ROWS, FLOAT32)
            after = b.fadd(before, b.load(place))
            is_sum = b.icmp_signed("!=", add, I64(0))
            store(b, b.select(is_sum, after, b.load(place)), out, at)

    return simple(types.void(*ints(8)), emit)


panel_6, panel_4, panel_1 = _panel(PANEL_ROWS), _panel(4), _panel(1)
"""panel_R(matrix, row_stride, k_stride, x, count, out, out_stride, add).

R rows of a float32 matrix times `count` columns of x, [count, GROUP_ROWS]: each sum is one chain of
fused multiply-adds in order of k. `add`: the sums are added to what `out` holds, else written.
"""
