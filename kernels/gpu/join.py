"""Attention's output and the MLP's down projection: a sum over K joins the residual.

The down projection is tile_tree/1: the sum over its tiles in the fixed tree. The output projection
has one tile for each piece of K. With two pieces the tree's two halves are summed by programs of
their own, and whoever ends last adds left + right: the order is the tree's in any case.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.halves import add_halves
from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.norm import write_residual
from plancc.kernels.gpu.ring import takes_ring
from plancc.kernels.gpu.ring_join import ring_join
from plancc.kernels.gpu.tilings import Tiling, padded_rows
from plancc.kernels.gpu.tree import levels, sum_over_tiles, widest_tile


@entry(["num_rows"])
def _join(
    x: tensor, w: tensor, bias: tensor, residual: tensor, gained: tensor, squares: tensor,
    gain: tensor, partials: tensor, counters: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDE: tl.constexpr, PIECES: tl.constexpr, EARLY: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    HALF: tl.constexpr = TILES if PIECES == 1 else (TILES + 1) // 2
    first = tl.program_id(1) * HALF
    end = tl.minimum(first + HALF, TILES)
    gains = tl.load(gain + columns, mask=columns < N, other=0.0)
    wait_for_previous(OVERLAP)
    rows = tl.arange(0, ROWS)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    before = tl.load(residual + rows[:, None] * N + columns[None, :], mask=is_in, other=0.0)
    acc = sum_over_tiles(x, w, num_rows, columns, first, end, N, K, TILES, GROUP, LEVELS, BLOCKS,
                         ROWS, BLOCK_N, BLOCK_K, WIDE, EARLY, OVERLAP)  # fmt: skip
    if PIECES == 2:
        at = rows[:, None] * N + columns[None, :]
        tl.store(partials + tl.program_id(1) * num_rows * N + at, acc, mask=is_in)
        is_last, acc = add_halves(partials, counters, at, is_in, num_rows, N)
        num_rows = tl.where(is_last, num_rows, 0)
    if bias is not None:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    write_residual(before.to(tl.float32) + acc, residual, gained, squares, gains, rows, num_rows,
                   tl.program_id(0) * BLOCK_N, N, BLOCK_N)  # fmt: skip


def join(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor,
    gained: torch.Tensor, squares: torch.Tensor, gain: torch.Tensor, *,
    tiling: Tiling, partials: torch.Tensor, counters: torch.Tensor, bounds: tuple[int, ...],
    group: int,
) -> None:  # fmt: skip
    """residual [rows, N] += x [rows, K] times w [N, K] plus bias, rounded once.

    gained and squares are written for the norm with `gain` that comes next. bounds: borders of the
    tiles, ir.tiles.tile_bounds of K and group. partials: float32, two times rows x N; counters:
    int32 zeros, N / 32 of them, zeros again afterwards.
    """
    num_rows, (n, k), tiles = x.shape[0], w.shape, len(bounds) - 1
    pieces = min(tiling.pieces, tiles)
    if takes_ring(tiling, bounds):
        ring_join(x, w, bias, residual, gained, squares, gain, tiling=tiling, partials=partials,
                  counters=counters, tiles=tiles, pieces=pieces)  # fmt: skip
        return
    launch(
        _join, (-(-n // tiling.block_n), pieces), x, w, bias, residual, gained, squares, gain,
        partials, counters, num_rows, N=n, K=k, TILES=tiles, GROUP=group,
        LEVELS=levels(tiles), BLOCKS=-(-widest_tile(bounds) // tiling.block_k),
        ROWS=padded_rows(num_rows), PIECES=pieces, **tiling.constants(),
    )  # fmt: skip
