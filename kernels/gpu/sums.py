"""Sums over K in one order, set by the shape alone: the loops of every decode product.

A weight row is read once, in blocks of BLOCK_K columns, for all rows of the step. The rows are
padded to ROWS (16, 32 or 64): an output element is a chain of tensor-core products over its own
row and its own weight row, so padding and neighbours do not enter into it.

WIDE: weights are the left operand (64 rows or more), else hidden rows are (16 or more).
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel
from plancc.kernels.gpu.launch import let_next_start, product
from plancc.kernels.gpu.norm import rms_scale


@kernel
def load_block(
    at: tensor, stride: tensor, rows: tensor, num_rows: tensor, columns: tensor, end: tensor,
    ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr,
) -> Any:  # fmt: skip
    """[rows, columns] of a matrix, zero where a row or a column is past its end."""
    places = at + rows[:, None].to(tl.int64) * stride + columns[None, :]
    if ALL_ROWS and ALL_COLUMNS:
        block = tl.load(places, eviction_policy="evict_first")  # weights: read once a step
    elif ALL_ROWS:
        block = tl.load(places, mask=columns[None, :] < end, other=0.0)
    elif ALL_COLUMNS:
        block = tl.load(places, mask=rows[:, None] < num_rows, other=0.0)
    else:
        is_in = (rows[:, None] < num_rows) & (columns[None, :] < end)
        block = tl.load(places, mask=is_in, other=0.0)
    return block


@kernel
def multiply(x: tensor, w: tensor, acc: tensor, WIDE: tl.constexpr) -> Any:
    """acc plus x [ROWS, BLOCK_K] times w [BLOCK_N, BLOCK_K], transposed where WIDE."""
    if WIDE:
        return product(w, tl.trans(x), acc)
    else:  # not after it: what follows a constexpr branch is compiled too
        return product(x, tl.trans(w), acc)


@kernel
def zeros(ROWS: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr) -> Any:
    """An empty sum, as `multiply` wants it."""
    if WIDE:
        return tl.zeros([BLOCK_N, ROWS], tl.float32)
    else:
        return tl.zeros([ROWS, BLOCK_N], tl.float32)


@kernel
def as_rows(acc: tensor, WIDE: tl.constexpr) -> Any:
    """[ROWS, BLOCK_N] of a sum."""
    if WIDE:
        return tl.trans(acc)
    else:
        return acc


@kernel
def sum_over_k(
    x: tensor, squares: tensor, w: tensor, num_rows: tensor, columns: tensor, eps: tensor,
    N: tl.constexpr, K: tl.constexpr, CHUNKS: tl.constexpr, LEVELS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr,
    EARLY: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    """([ROWS, BLOCK_N]: x [num_rows, K] times rows `columns` of w [N, K]; the rows' rms_scale).

    The next kernel may start when EARLY blocks are left. The scale is made in the loop's first
    turn, when weights are on their way already.
    """
    rows, ks = tl.arange(0, ROWS), tl.arange(0, BLOCK_K)
    acc, scale = zeros(ROWS, BLOCK_N, WIDE), tl.zeros([ROWS, 1], tl.float32)
    for k in range(0, K, BLOCK_K):
        ws = load_block(w, K, columns, N, k + ks, K, N % BLOCK_N == 0, K % BLOCK_K == 0)
        xs = load_block(x, K, rows, num_rows, k + ks, K, False, K % BLOCK_K == 0)
        if k == 0:
            scale = rms_scale(squares, rows, num_rows, eps, K, CHUNKS, LEVELS)
        acc = multiply(xs, ws, acc, WIDE)
        if EARLY > 0:
            if k == (K - 1) // BLOCK_K * BLOCK_K - EARLY * BLOCK_K:
                let_next_start(OVERLAP)
    return as_rows(acc, WIDE), scale
