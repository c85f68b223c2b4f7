"""tile_tree/1 in decode, first half: gate, up and SiLU in one kernel."""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.activation import silu
from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous
from plancc.kernels.gpu.norm import CHUNK, rms_scale
from plancc.kernels.gpu.ring import takes_ring
from plancc.kernels.gpu.ring_linear import ring_linear
from plancc.kernels.gpu.sums import as_rows, load_block, multiply, zeros
from plancc.kernels.gpu.tilings import Tiling, padded_rows, power_of_two


@entry(["num_rows"])
def _gate_up(
    gained: tensor, squares: tensor, w: tensor, out: tensor, num_rows: tensor, eps: tensor,
    N: tl.constexpr, K: tl.constexpr, CHUNKS: tl.constexpr, LEVELS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr,
    EARLY: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ups = w + tl.full([], N * K, tl.int64)
    wait_for_previous(OVERLAP)
    rows, ks = tl.arange(0, ROWS), tl.arange(0, BLOCK_K)
    scale = tl.zeros([ROWS, 1], tl.float32)
    gate, up = zeros(ROWS, BLOCK_N, WIDE), zeros(ROWS, BLOCK_N, WIDE)
    for k in range(0, K, BLOCK_K):
        gates = load_block(w, K, columns, N, k + ks, K, N % BLOCK_N == 0, K % BLOCK_K == 0)
        upper = load_block(ups, K, columns, N, k + ks, K, N % BLOCK_N == 0, K % BLOCK_K == 0)
        xs = load_block(gained, K, rows, num_rows, k + ks, K, False, K % BLOCK_K == 0)
        if k == 0:
            scale = rms_scale(squares, rows, num_rows, eps, K, CHUNKS, LEVELS)
        gate, up = multiply(xs, gates, gate, WIDE), multiply(xs, upper, up, WIDE)
        if EARLY > 0:
            if k == (K - 1) // BLOCK_K * BLOCK_K - EARLY * BLOCK_K:
                let_next_start(OVERLAP)
    value = silu(as_rows(gate, WIDE) * scale) * (as_rows(up, WIDE) * scale)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        value.to(out.dtype.element_ty),
        mask=(rows[:, None] < num_rows) & (columns[None, :] < N),
    )


def gate_up(
    gained: torch.Tensor, squares: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *,
    eps: float, tiling: Tiling,
) -> None:  # fmt: skip
    """out [rows, N] = silu(norm(r) gate) * (norm(r) up), rounded; w [2 N, K]: gate, then up."""
    num_rows, k, n = gained.shape[0], w.shape[1], w.shape[0] // 2
    if takes_ring(tiling, (0, k)):
        ring_linear(gained, squares, w, None, out, eps=eps, tiling=tiling, matrices=2)
        return
    chunks = power_of_two(-(-k // CHUNK))
    launch(
        _gate_up, (-(-n // tiling.block_n),), gained, squares, w, out, num_rows, eps,
        N=n, K=k, CHUNKS=chunks, LEVELS=chunks.bit_length() - 1, ROWS=padded_rows(num_rows),
        **tiling.constants(),
    )  # fmt: skip
