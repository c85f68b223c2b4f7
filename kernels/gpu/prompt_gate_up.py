"""tile_tree/1 for prompt rows, first half: gate, up and SiLU in one kernel.

A program walks output blocks, and K in blocks of BLOCK_K, one after the other.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.activation import silu
from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.prompt_blocks import load, place
from plancc.kernels.gpu.prompt_tilings import (
    PromptTiling,
    constants,
    fitting,
    gate_up_tiling,
    programs_of,
    sources,
)


@entry(["num_rows"])
def _gate_up(
    x: tensor, w: tensor, out: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, COPIES: tl.constexpr, HEIGHT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    COLUMNS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    EVEN: tl.constexpr = K % BLOCK_K == 0
    row_blocks = tl.cdiv(num_rows, BLOCK_M)
    for index in range(tl.program_id(0), row_blocks * COLUMNS, tl.num_programs(0)):
        m, n = place(index, row_blocks, COLUMNS, HEIGHT)
        rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
        x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
        gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            xs = load(x, x_rows, m * BLOCK_M, k, K, K, BLOCK_K, EVEN, COPIES)
            gates = load(w, w_rows, n * BLOCK_N, k, K, K, BLOCK_K, EVEN, COPIES)
            ups = load(w, w_rows + N, n * BLOCK_N + N, k, K, K, BLOCK_K, EVEN, COPIES)
            gate, up = product(xs, tl.trans(gates), gate), product(xs, tl.trans(ups), up)
        is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
        at = rows[:, None].to(tl.int64) * N + columns[None, :]
        tl.store(out + at, (silu(gate) * up).to(out.dtype.element_ty), mask=is_in)


def prompt_gate_up(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, tiling: PromptTiling | None = None
) -> None:
    """out [rows, N] = silu(x gate) * (x up), rounded; w [2 N, K]: gate, then up. All
    contiguous."""
    n, k = w.shape[0] // 2, w.shape[1]
    tiling = tiling or gate_up_tiling(x.element_size(), card_of(x.device), len(x), n)
    tiling = fitting(tiling, x, w, k, is_even=True)
    blocks = -(-x.shape[0] // tiling.block_m) * -(-n // tiling.block_n)
    xs, ws = sources(x, w, tiling)
    launch(_gate_up, (programs_of(tiling, blocks, x.device),), xs, ws, out, x.shape[0],
           N=n, K=k, **constants(tiling))  # fmt: skip
