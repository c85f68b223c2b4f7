"""The sum over an MLP's tiles: each tile's partial by itself, then the fixed tree of ir/tiles.py.

Tiles are walked in order. Sums of finished subtrees wait on a stack of registers; after a tile, as
many pairs of the topmost are added as nodes of the tree end with it. Nothing waits in memory.
"""

from functools import cache
from itertools import pairwise
from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel
from plancc.kernels.gpu.launch import let_next_start
from plancc.kernels.gpu.sums import as_rows, load_block, multiply, zeros

MAX_LEVELS = 6  # 64 tiles


def levels(tiles: int) -> int:
    """Of the tree over so many tiles: as many sums wait on its stack at once, at most."""
    return max(1, (tiles - 1).bit_length())


@cache
def widest_tile(bounds: tuple[int, ...]) -> int:
    """Columns of the widest of the tiles that have these borders."""
    return max(end - first for first, end in pairwise(bounds))


@kernel
def merges_after(tile: tensor, TILES: tl.constexpr, LEVELS: tl.constexpr) -> Any:
    """How many nodes of the tree over TILES tiles end with a tile, itself not counted."""
    first, end, count = 0, TILES, 0
    for _ in tl.static_range(LEVELS):
        middle = (first + end + 1) // 2
        goes_right = (end - first > 1) & (tile >= middle)
        goes_left = (end - first > 1) & (tile < middle)
        count = tl.where(goes_right, count + 1, tl.where(goes_left, 0, count))
        first = tl.where(goes_right, middle, first)
        end = tl.where(goes_left, middle, end)
    return count


@kernel
def merges_within(
    tile: tensor, first: tensor, end: tensor, TILES: tl.constexpr, LEVELS: tl.constexpr
) -> Any:
    """(how many nodes inside the run [first, end) end with a tile, itself not counted; whether the
    largest of them, or the tile where there is none, lies in no other node inside the run)."""
    a, b, ending, around = 0, TILES, 0, 0
    for _ in tl.static_range(LEVELS):
        middle, is_node = (a + b + 1) // 2, b - a > 1
        is_inside = is_node & (a >= first) & (b <= end)
        goes_right = is_node & (tile >= middle)
        around = tl.where(is_inside, around + 1, around)
        ending = tl.where(is_inside & goes_right, ending + 1, tl.where(is_node, 0, ending))
        a = tl.where(goes_right, middle, a)
        b = tl.where(is_node & (tile < middle), middle, b)
    return ending, ending == around


@kernel
def tile_start(tile: tensor, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr) -> Any:
    """The first column of a tile: whole groups, as ir.tiles.tile_bounds cuts."""
    if (K // GROUP) % TILES == 0:
        start = tile * (K // TILES)  # the compiler sees that loads from it on are aligned
    else:
        start = (tile * (K // GROUP) + TILES - 1) // TILES * GROUP
    return start


@kernel
def share_start(
    tile: tensor, FIRST: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr
) -> Any:
    """The same in a matrix that begins with tile FIRST."""
    if (K // GROUP) % TILES == 0:
        start = (tile - FIRST) * (K // TILES)
    else:
        start = tile_start(tile, K, TILES, GROUP) - tile_start(FIRST, K, TILES, GROUP)
    return start


@kernel
def _top(
    s0: tensor, s1: tensor, s2: tensor, s3: tensor, s4: tensor, s5: tensor, depth: tensor,
    LEVELS: tl.constexpr,
) -> Any:  # fmt: skip
    """The topmost of `depth` sums; s0 where there is none."""
    top = s0
    if LEVELS > 1:
        top = tl.where(depth == 2, s1, top)
    if LEVELS > 2:
        top = tl.where(depth == 3, s2, top)
    if LEVELS > 3:
        top = tl.where(depth == 4, s3, top)
    if LEVELS > 4:
        top = tl.where(depth == 5, s4, top)
    if LEVELS > 5:
        top = tl.where(depth == 6, s5, top)
    return top


@kernel
def push_tile(
    s0: tensor, s1: tensor, s2: tensor, s3: tensor, s4: tensor, s5: tensor, depth: tensor,
    value: tensor, merges: tensor,
    LEVELS: tl.constexpr,
) -> Any:  # fmt: skip
    """The stack and its depth once a tile's partial is merged and pushed."""
    for step in tl.static_range(LEVELS):
        merge = (step < merges) & (depth > 0)
        top = _top(s0, s1, s2, s3, s4, s5, depth, LEVELS)
        value = tl.where(merge, top + value, value)
        depth = tl.where(merge, depth - 1, depth)
    s0 = tl.where(depth == 0, value, s0)
    if LEVELS > 1:
        s1 = tl.where(depth == 1, value, s1)
    if LEVELS > 2:
        s2 = tl.where(depth == 2, value, s2)
    if LEVELS > 3:
        s3 = tl.where(depth == 3, value, s3)
    if LEVELS > 4:
        s4 = tl.where(depth == 4, value, s4)
    if LEVELS > 5:
        s5 = tl.where(depth == 5, value, s5)
    return s0, s1, s2, s3, s4, s5, depth + 1


@kernel
def sum_over_tiles(
    x: tensor, w: tensor, num_rows: tensor, columns: tensor, first_tile: tensor, end_tile: tensor,
    N: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    """[ROWS, BLOCK_N]: the node of the tree that tiles [first, end) are.

    A tile is BLOCKS blocks of BLOCK_K columns at most.
    """
    rows, ks = tl.arange(0, ROWS), tl.arange(0, BLOCK_K)
    EVEN: tl.constexpr = (K % TILES == 0) & ((K // GROUP) % TILES == 0) & (
        (K // TILES) % BLOCK_K == 0
    )  # fmt: skip
    acc = zeros(ROWS, BLOCK_N, WIDE)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, 0
    for step in range(first_tile * BLOCKS, end_tile * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        end = tile_start(tile + 1, K, TILES, GROUP)
        k = tile_start(tile, K, TILES, GROUP) + block * BLOCK_K + ks
        ws = load_block(w, K, columns, N, k, end, N % BLOCK_N == 0, EVEN)
        xs = load_block(x, K, rows, num_rows, k, end, False, EVEN)
        acc = multiply(xs, ws, acc, WIDE)
        if EARLY > 0:
            if step == end_tile * BLOCKS - 1 - EARLY:
                let_next_start(OVERLAP)
        if block == BLOCKS - 1:
            s0, s1, s2, s3, s4, s5, depth = push_tile(
                s0, s1, s2, s3, s4, s5, depth, acc, merges_after(tile, TILES, LEVELS), LEVELS
            )
            acc = zeros(ROWS, BLOCK_N, WIDE)
    return as_rows(s0, WIDE)
