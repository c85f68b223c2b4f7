"""tile_tree/1 in decode on a rank of a TP group, as partials.py has it, with a ring (ring.py)."""

from typing import Any

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.language import tensor

from plancc.kernels.gpu.jit import gluon_entry, gluon_kernel
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.ring import (
    AS_ROWS,
    as_rows,
    ask_first_rows,
    ask_first_weights,
    close_ring,
    descriptor,
    no_sum,
    open_ring,
    sum_blocks,
)
from plancc.kernels.gpu.tilings import RING_COLUMNS, RING_ROWS, RING_WARPS, Tiling, padded_rows
from plancc.kernels.gpu.tree import merges_within, push_tile

_TILE: gl.constexpr = gl.constexpr(RING_ROWS)


@gluon_kernel
def _add_halves(
    out: tensor, halves: tensor, counters: tensor, at: tensor, to: tensor, is_in: tensor,
    size: tensor,
) -> Any:  # fmt: skip
    """out = left + right, by the program that ends last of the two that stored them; size: of one
    in `halves`."""
    tl.debug_barrier()
    counter = counters + gl.program_id(0)
    is_last = gl.atomic_add(counter, 1, sem="acq_rel") == 1
    left = gl.load(halves + at, mask=is_in & is_last, other=0.0, cache_modifier=".cg")
    right = gl.load(halves + size + at, mask=is_in & is_last, other=0.0, cache_modifier=".cg")
    gl.store(counter, 0, mask=is_last)
    gl.store(out + to, left + right, mask=is_in & is_last)


@gluon_entry(["num_rows"])
def _ring_partials(
    w: tensor, x: tensor, out: tensor, halves: tensor, counters: tensor, num_rows: tensor,
    N: gl.constexpr, TILES: gl.constexpr, FIRST: gl.constexpr, CUT: gl.constexpr,
    END: gl.constexpr, ROOTS: gl.constexpr, SECOND: gl.constexpr, SPLIT: gl.constexpr,
    WALK: gl.constexpr, LEVELS: gl.constexpr, BLOCKS: gl.constexpr, SLOTS: gl.constexpr,
    EARLY: gl.constexpr, OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    ROWS: gl.constexpr = x.block_type.shape[0]
    row, piece = gl.program_id(0) * _TILE, gl.program_id(1)
    first, end = gl.where(piece == 0, FIRST, CUT), gl.where(piece == 0, CUT, END)
    origin, last = (first - FIRST) * BLOCKS, (end - FIRST) * BLOCKS
    bars, weights, slots = open_ring(w, x, _TILE, SLOTS)
    ask_first_weights(w, bars, weights, row, row, origin, last, _TILE, _TILE, ROWS, SLOTS)
    wait_for_previous(OVERLAP)
    ask_first_rows(x, bars, slots, origin, last, SLOTS)
    columns = row + gl.arange(0, _TILE, gl.SliceLayout(0, AS_ROWS))[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, AS_ROWS))[:, None]
    is_in = (rows < num_rows) & (columns < N)
    at, to = rows * N + columns, rows * (ROOTS * N) + columns
    root, none = piece * SECOND, no_sum(x, _TILE)
    s0, s1, s2, s3, s4, s5, depth = none, none, none, none, none, none, first * 0
    for tile in range(first, end):
        start = (tile - FIRST) * BLOCKS
        acc = sum_blocks(w, x, bars, weights, slots, row, row, origin, start, start + BLOCKS, last,
                         _TILE, _TILE, SLOTS, EARLY, OVERLAP)  # fmt: skip
        merges, is_root = merges_within(tile, first, end, TILES, WALK)
        s0, s1, s2, s3, s4, s5, depth = push_tile(
            s0, s1, s2, s3, s4, s5, depth, acc, merges, LEVELS
        )
        if is_root:
            found, is_half = as_rows(s0), root == SPLIT
            gl.store(out + to + root * N, found, mask=is_in & (not is_half))
            if SPLIT >= 0:
                gl.store(halves + piece * num_rows * N + at, found, mask=is_in & is_half)
            root += 1
            depth = 0
    if SPLIT >= 0:
        _add_halves(out, halves, counters, at, to + SPLIT * N, is_in, num_rows * N)
    close_ring(bars)


def ring_partials(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, tiling: Tiling, halves: torch.Tensor,
    counters: torch.Tensor, width: int, pieces: int, shortest: int, **cut: int,
) -> None:  # fmt: skip
    """As partials.partials, for tiles that are all of one width: whole blocks of columns.

    shortest: tiles of the shorter piece; cut: the constants that say which tiles and roots they
    are.
    """
    num_rows, n, blocks = x.shape[0], w.shape[0], width // RING_COLUMNS
    launch(
        _ring_partials, (-(-n // RING_ROWS), pieces), descriptor(w, RING_ROWS),
        descriptor(x, padded_rows(num_rows)), out, halves, counters, num_rows, N=n, BLOCKS=blocks,
        SLOTS=tiling.slots, EARLY=min(tiling.early, shortest * blocks - 1), **cut,
        warps=RING_WARPS,
    )  # fmt: skip
