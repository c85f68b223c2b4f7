"""A sum over K that joins the residual, as join.py has it, with a ring (ring.py)."""

from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.language import tensor

from plancc.kernels.gpu.halves import add_other_half
from plancc.kernels.gpu.jit import gluon_entry, gluon_kernel
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
    store_squares,
    sum_blocks,
)
from plancc.kernels.gpu.tilings import RING_COLUMNS, RING_ROWS, RING_WARPS, Tiling, padded_rows
from plancc.kernels.gpu.tree import levels, merges_after, push_tile


@gluon_kernel
def _sum_tiles(
    w: tensor, x: tensor, bars: tensor, w_slots: tensor, x_slots: tensor, row: tensor,
    first: tensor, end: tensor,
    TILES: gl.constexpr, LEVELS: gl.constexpr, BLOCKS: gl.constexpr, SLOTS: gl.constexpr,
    EARLY: gl.constexpr, OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    """[64, ROWS]: the node of the tree that tiles [first, end) are, as tree.sum_over_tiles."""
    origin, last = first * BLOCKS, end * BLOCKS
    acc = sum_blocks(w, x, bars, w_slots, x_slots, row, row, origin, origin, origin + BLOCKS, last,
                     FULL, FULL, SLOTS, EARLY, OVERLAP)  # fmt: skip
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, 1
    for tile in range(first + 1, end):
        at = tile * BLOCKS
        acc = sum_blocks(w, x, bars, w_slots, x_slots, row, row, origin, at, at + BLOCKS, last,
                         FULL, FULL, SLOTS, EARLY, OVERLAP)  # fmt: skip
        s0, s1, s2, s3, s4, s5, depth = push_tile(
            s0, s1, s2, s3, s4, s5, depth, acc, merges_after(tile, TILES, LEVELS), LEVELS
        )
    return s0


@gluon_entry(["num_rows"])
def _ring_join(
    w: tensor, x: tensor, bias: tensor, residual: tensor, gained: tensor, squares: tensor,
    gain: tensor, partials: tensor, counters: tensor, num_rows: tensor,
    N: gl.constexpr, TILES: gl.constexpr, LEVELS: gl.constexpr, BLOCKS: gl.constexpr,
    PIECES: gl.constexpr, CHUNK: gl.constexpr, SLOTS: gl.constexpr, EARLY: gl.constexpr,
    OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    ROWS: gl.constexpr = x.block_type.shape[0]
    HALF: gl.constexpr = TILES if PIECES == 1 else (TILES + 1) // 2
    row, first = gl.program_id(0) * FULL, gl.program_id(1) * HALF
    end = gl.minimum(first + HALF, TILES)
    bars, w_slots, x_slots = open_ring(w, x, FULL, SLOTS)
    ask_first_weights(w, bars, w_slots, row, row, first * BLOCKS, end * BLOCKS, FULL, FULL, ROWS,
                      SLOTS)  # fmt: skip
    columns = row + gl.arange(0, FULL, gl.SliceLayout(0, AS_ROWS))[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, AS_ROWS))[:, None]
    gains = gl.load(gain + columns, mask=columns < N, other=0.0).to(gl.float32)
    wait_for_previous(OVERLAP)
    ask_first_rows(x, bars, x_slots, first * BLOCKS, end * BLOCKS, SLOTS)
    at, is_in = rows * N + columns, (rows < num_rows) & (columns < N)
    before = gl.load(residual + at, mask=is_in, other=0.0)
    acc = as_rows(_sum_tiles(w, x, bars, w_slots, x_slots, row, first, end, TILES, LEVELS, BLOCKS,
                             SLOTS, EARLY, OVERLAP))  # fmt: skip
    if PIECES == 2:
        is_last, acc = add_other_half(acc, partials, counters, at, is_in, num_rows, N)
        is_in, num_rows = is_in & is_last, gl.where(is_last, num_rows, 0)
    if bias is not None:
        acc += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)
    value = gl.where(is_in, before.to(gl.float32) + acc, 0.0).to(residual.dtype.element_ty)
    gl.store(residual + at, value, mask=is_in)
    wide = value.to(gl.float32)
    gl.store(gained + at, (wide * gains).to(gained.dtype.element_ty), mask=is_in)
    store_squares(wide, squares, num_rows, row, N, CHUNK)
    close_ring(bars)


def ring_join(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor,
    gained: torch.Tensor, squares: torch.Tensor, gain: torch.Tensor, *,
    tiling: Tiling, partials: torch.Tensor, counters: torch.Tensor, tiles: int, pieces: int,
) -> None:  # fmt: skip
    """As join.join, for tiles that are all of one width: whole blocks of columns."""
    num_rows, (n, k) = x.shape[0], w.shape
    blocks = k // tiles // RING_COLUMNS
    launch(
        _ring_join, (-(-n // RING_ROWS), pieces), descriptor(w, RING_ROWS),
        descriptor(x, padded_rows(num_rows)), bias, residual, gained, squares, gain, partials,
        counters, num_rows, N=n, TILES=tiles, LEVELS=levels(tiles),
        BLOCKS=blocks, PIECES=pieces, CHUNK=CHUNK, SLOTS=tiling.slots,
        EARLY=min(tiling.early, tiles // pieces * blocks - 1), warps=RING_WARPS,
    )  # fmt: skip
