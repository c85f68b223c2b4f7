"""tile_tree/1 in decode on a rank of a TP group, as partials.py has it, with a ring (ring.py)."""

from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.language import tensor

from plancc.kernels.gpu.halves import add_halves
from plancc.kernels.gpu.jit import gluon_entry
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.ring import (
    AS_ROWS,
    FULL,
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


@gluon_entry(["num_rows"])
def _ring_partials(
    w: tensor, x: tensor, out: tensor, halves: tensor, counters: tensor, num_rows: tensor,
    N: gl.constexpr, TILES: gl.constexpr, FIRST: gl.constexpr, CUT: gl.constexpr,
    END: gl.constexpr, ROOTS: gl.constexpr, SECOND: gl.constexpr, SPLIT: gl.constexpr,
    WALK: gl.constexpr, LEVELS: gl.constexpr, BLOCKS: gl.constexpr, SLOTS: gl.constexpr,
    EARLY: gl.constexpr, OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    ROWS: gl.constexpr = x.block_type.shape[0]
    row, piece = gl.program_id(0) * FULL, gl.program_id(1)
    first, end = gl.where(piece == 0, FIRST, CUT), gl.where(piece == 0, CUT, END)
    origin, last = (first - FIRST) * BLOCKS, (end - FIRST) * BLOCKS
    bars, w_slots, x_slots = open_ring(w, x, FULL, SLOTS)
    ask_first_weights(w, bars, w_slots, row, row, origin, last, FULL, FULL, ROWS, SLOTS)
    wait_for_previous(OVERLAP)
    ask_first_rows(x, bars, x_slots, origin, last, SLOTS)
    columns = row + gl.arange(0, FULL, gl.SliceLayout(0, AS_ROWS))[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, AS_ROWS))[:, None]
    is_in = (rows < num_rows) & (columns < N)
    at, to = rows * N + columns, rows * (ROOTS * N) + columns
    root, none = piece * SECOND, no_sum(x, FULL)
    s0, s1, s2, s3, s4, s5, depth = none, none, none, none, none, none, 0
    for tile in range(first, end):
        start = (tile - FIRST) * BLOCKS
        acc = sum_blocks(w, x, bars, w_slots, x_slots, row, row, origin, start, start + BLOCKS,
                         last, FULL, FULL, SLOTS, EARLY, OVERLAP)  # fmt: skip
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
        is_last, total = add_halves(halves, counters, at, is_in, num_rows, N)
        gl.store(out + (to + SPLIT * N), total, mask=is_in & is_last)
    close_ring(bars)


def ring_partials(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, tiling: Tiling, halves: torch.Tensor,
    counters: torch.Tensor, width: int, pieces: int, shorter: int, **spans: int,
) -> None:  # fmt: skip
    """As partials.partials, for tiles that are all of one width: whole blocks of columns.

    shorter: tiles of the shorter piece; spans: the constants that say which tiles and roots there
    are, and where they are cut.
    """
    num_rows, n, blocks = x.shape[0], w.shape[0], width // RING_COLUMNS
    launch(
        _ring_partials, (-(-n // RING_ROWS), pieces), descriptor(w, RING_ROWS),
        descriptor(x, padded_rows(num_rows)), out, halves, counters, num_rows, N=n, BLOCKS=blocks,
        SLOTS=tiling.slots, EARLY=min(tiling.early, shorter * blocks - 1), **spans,
        warps=RING_WARPS,
    )  # fmt: skip
