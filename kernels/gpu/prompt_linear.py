"""row_dot/1 and tile_tree/1 for prompt rows: matrix products with one order over K.

A program has BLOCK_M rows and BLOCK_N columns and walks K in blocks of BLOCK_K, one after the
other: an element is a chain over its own row and column, whatever the chunk or the neighbours.
Any shape of 1 or more; fast where K is whole blocks.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.mlp import silu

GROUP = tl.constexpr(8)  # row blocks whose programs are neighbours: they share columns of w


@kernel
def place(num_rows: tensor, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr) -> Any:
    """(row block, column block) of this program."""
    columns: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row_blocks = tl.cdiv(num_rows, BLOCK_M)
    group, inside = tl.program_id(0) // (GROUP * columns), tl.program_id(0) % (GROUP * columns)
    height = tl.minimum(row_blocks - group * GROUP, GROUP)
    return group * GROUP + inside % height, inside // height


@kernel
def load_k(
    at: tensor, rows: tensor, k: tensor, end: tensor, K: tl.constexpr, EVEN: tl.constexpr
) -> Any:
    """Columns k of rows: every row exists, columns from `end` on are zero."""
    places = at + rows[:, None].to(tl.int64) * K + k[None, :]
    if EVEN:
        block = tl.load(places)
    else:
        block = tl.load(places, mask=k[None, :] < end, other=0.0)
    return block


@entry(["num_rows"])
def _linear(
    x: tensor, w: tensor, bias: tensor, before: tensor, out: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    m, n = place(num_rows, N, BLOCK_M, BLOCK_N)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        xs = load_k(x, x_rows, k + ks, K, K, K % BLOCK_K == 0)
        ws = load_k(w, w_rows, k + ks, K, K, K % BLOCK_K == 0)
        acc = product(xs, tl.trans(ws), acc)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = rows[:, None].to(tl.int64) * N + columns[None, :]
    if bias is not None:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if before is not None:
        acc += tl.load(before + at, mask=is_in, other=0.0).to(tl.float32)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=is_in)


@entry(["num_rows"])
def _gate_up(
    x: tensor, w: tensor, out: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    m, n = place(num_rows, N, BLOCK_M, BLOCK_N)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
    gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        xs = load_k(x, x_rows, k + ks, K, K, K % BLOCK_K == 0)
        gates = load_k(w, w_rows, k + ks, K, K, K % BLOCK_K == 0)
        ups = load_k(w, w_rows + N, k + ks, K, K, K % BLOCK_K == 0)
        gate, up = product(xs, tl.trans(gates), gate), product(xs, tl.trans(ups), up)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(out + at, (silu(gate) * up).to(out.dtype.element_ty), mask=is_in)


def _sizes(x: torch.Tensor, n: int, block_n: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and block sizes; float32 products are done without tensor cores, in small blocks."""
    is_wide = x.element_size() == 4
    m, n_block, k = (32, 32, 32) if is_wide else (128, block_n, 64)
    grid = (-(-x.shape[0] // m) * -(-n // n_block),)
    return grid, {"BLOCK_M": m, "BLOCK_N": n_block, "BLOCK_K": k, "warps": 4 if is_wide else 8,
                  "stages": 2 if is_wide else 4}  # fmt: skip


def prompt_linear(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor,
) -> None:  # fmt: skip
    """out [rows, N] = x [rows, K] times w [N, K], plus bias [N], plus `before` (out or None)."""
    n, k = w.shape
    grid, sizes = _sizes(x, n, 128 if before is not None else 256)
    launch(_linear, grid, x, w, bias, before, out, x.shape[0], N=n, K=k, **sizes)


def prompt_gate_up(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """out [rows, N] = silu(x gate) * (x up), rounded; w [2 N, K]: gate, then up."""
    n, k = w.shape[0] // 2, w.shape[1]
    grid, sizes = _sizes(x, n, 128)
    launch(_gate_up, grid, x, w, out, x.shape[0], N=n, K=k, **sizes)
