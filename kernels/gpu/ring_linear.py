"""row_dot/1 in decode as linear.py and mlp.py have it, with a ring (ring.py)."""

from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.language import tensor

from plancc.kernels.gpu.activation import silu
from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.jit import gluon_entry
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.ring import (
    AS_ROWS,
    FULL,
    as_rows,
    ask_first_rows,
    ask_first_weights,
    close_ring,
    descriptor,
    open_ring,
    scale_of,
    sum_blocks,
)
from plancc.kernels.gpu.tilings import (
    RING_COLUMNS,
    RING_ROWS,
    RING_WARPS,
    Tiling,
    padded_rows,
    power_of_two,
    ring_rows,
)


@gluon_entry(["num_rows"])
def _ring_linear(
    w: tensor, x: tensor, squares: tensor, bias: tensor, out: tensor, num_rows: tensor, eps: tensor,
    N: gl.constexpr, K: gl.constexpr, HEIGHT: gl.constexpr, TAKEN: gl.constexpr,
    CHUNK: gl.constexpr, EACH: gl.constexpr, LEVELS: gl.constexpr, THREADS: gl.constexpr,
    MORE: gl.constexpr, SLOTS: gl.constexpr, EARLY: gl.constexpr, OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    """A program has TAKEN columns of the result. With two matrices w has gate, then up, and SiLU
    of the one is multiplied by the other."""
    ROWS: gl.constexpr = x.block_type.shape[0]
    BLOCKS: gl.constexpr = K // x.block_type.shape[1]
    row = gl.program_id(0) * TAKEN
    bars, w_slots, x_slots = open_ring(w, x, HEIGHT, SLOTS)
    ask_first_weights(w, bars, w_slots, row, N + row, 0, BLOCKS, HEIGHT, TAKEN, ROWS, SLOTS)
    wait_for_previous(OVERLAP)
    ask_first_rows(x, bars, x_slots, 0, BLOCKS, SLOTS)
    scale = scale_of(squares, num_rows, eps, K, ROWS, CHUNK, EACH, LEVELS, THREADS, MORE)[:, None]
    acc = sum_blocks(w, x, bars, w_slots, x_slots, row, N + row, 0, 0, BLOCKS, BLOCKS, HEIGHT,
                     TAKEN, SLOTS, EARLY, OVERLAP)  # fmt: skip
    place = gl.arange(0, FULL, gl.SliceLayout(0, AS_ROWS))
    columns = row + place
    if HEIGHT == FULL:
        value = as_rows(acc) * scale
    else:
        gate, up = gl.split(gl.permute(gl.reshape(acc, [2, FULL, ROWS]), (1, 2, 0)))
        value = silu(as_rows(gate) * scale) * (as_rows(up) * scale)
    if bias is not None:
        value += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, AS_ROWS))[:, None]
    is_in = (rows < num_rows) & ((place < TAKEN) & (columns < N))[None, :]
    gl.store(out + rows.to(gl.int64) * N + columns[None, :], value.to(out.dtype.element_ty),
             mask=is_in)  # fmt: skip
    close_ring(bars)


def ring_linear(
    gained: torch.Tensor, squares: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
    out: torch.Tensor, *, eps: float, tiling: Tiling, matrices: int = 1,
) -> None:  # fmt: skip
    """As linear.linear; with two matrices as mlp.gate_up."""
    num_rows, k, n = gained.shape[0], w.shape[1], w.shape[0] // matrices
    chunks = power_of_two(-(-k // CHUNK))
    each, rows = min(chunks, 32), padded_rows(num_rows)
    taken = ring_rows(n, k, card_of(w.device)) if matrices == 1 else RING_ROWS
    launch(
        _ring_linear, (-(-n // taken),), descriptor(w, taken & -taken), descriptor(gained, rows),
        squares, bias, out, num_rows, eps, N=n, K=k, HEIGHT=matrices * RING_ROWS, TAKEN=taken,
        CHUNK=CHUNK, EACH=each, LEVELS=each.bit_length() - 1, THREADS=chunks // each,
        MORE=(chunks // each).bit_length() - 1, SLOTS=tiling.slots,
        EARLY=min(tiling.early, k // RING_COLUMNS - 1), warps=RING_WARPS,
    )  # fmt: skip
