"""Where a program of a prompt product stands, and what it loads."""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel


@kernel
def place(index: tensor, row_blocks: tensor, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr) -> Any:
    """(row block, column block) of an output block: HEIGHT row blocks share columns of w."""
    group, inside = index // (HEIGHT * COLUMNS), index % (HEIGHT * COLUMNS)
    height = tl.minimum(row_blocks - group * HEIGHT, HEIGHT)
    return group * HEIGHT + inside % height, inside // height


@kernel
def load_k(
    at: tensor, rows: tensor, k: tensor, end: tensor, PITCH: tl.constexpr, EVEN: tl.constexpr
) -> Any:
    """Columns k of rows that are PITCH numbers apart: every row exists, columns from `end` on are
    zero."""
    places = at + rows[:, None].to(tl.int64) * PITCH + k[None, :]
    if EVEN:
        block = tl.load(places)
    else:
        block = tl.load(places, mask=k[None, :] < end, other=0.0)
    return block


@kernel
def load(
    x: tensor, rows: tensor, first: tensor, start: tensor, end: tensor, PITCH: tl.constexpr,
    BLOCK_K: tl.constexpr, EVEN: tl.constexpr, COPIES: tl.constexpr,
) -> Any:  # fmt: skip
    """BLOCK_K columns of x from start on, of `rows`, which begin at `first`."""
    if COPIES:
        block = x.load([first, start])
    else:
        block = load_k(x, rows, start + tl.arange(0, BLOCK_K), end, PITCH, EVEN)
    return block


@kernel
def finish(
    acc: tensor, bias: tensor, before: tensor, out: tensor, rows: tensor, columns: tensor,
    num_rows: tensor,
    N: tl.constexpr, PITCH: tl.constexpr,
) -> Any:  # fmt: skip
    """Store a block of sums, plus bias [N], plus `before`, rounded once; rows are PITCH apart."""
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = rows[:, None].to(tl.int64) * PITCH + columns[None, :]
    if bias is not None:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if before is not None:
        acc += tl.load(before + at, mask=is_in, other=0.0).to(tl.float32)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=is_in)
