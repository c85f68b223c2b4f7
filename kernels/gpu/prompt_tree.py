"""tile_tree/1 for prompt rows, and row_dot/1, which is a tree of one tile.

A program walks output blocks; in each, all tiles of K in one loop. Blocks are large, and then sums
of finished subtrees find no room in registers: they wait in memory (waiting.py). Small blocks hold
all of them. The order of the sums is that of tree.py whatever the tiling.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.prompt_blocks import finish, load, place
from plancc.kernels.gpu.prompt_tilings import (
    ALL_HELD,
    PromptTiling,
    constants,
    fitting,
    programs_of,
    sources,
    waiting_size,
    waiting_slots,
)
from plancc.kernels.gpu.tree import levels, merges_after, push_tile, share_start, widest_tile
from plancc.kernels.gpu.waiting import add_held, add_waiting, complete, push_waiting

Span = tuple[int, int]
_ALL = tl.constexpr(ALL_HELD)


@kernel
def _add_block(
    acc: tensor, x: tensor, w: tensor, rows: tensor, columns: tensor, first_row: tensor,
    first_column: tensor, tile: tensor, block: tensor,
    PITCH: tl.constexpr, WHOLE: tl.constexpr, OF: tl.constexpr, FIRST: tl.constexpr,
    GROUP: tl.constexpr, EVEN: tl.constexpr, BLOCK_K: tl.constexpr, COPIES: tl.constexpr,
) -> Any:  # fmt: skip
    """acc and the product of a block of a tile's columns."""
    start = share_start(FIRST + tile, FIRST, WHOLE, OF, GROUP) + block * BLOCK_K
    end = share_start(FIRST + tile + 1, FIRST, WHOLE, OF, GROUP)
    xs = load(x, rows, first_row, start, end, PITCH, BLOCK_K, EVEN, COPIES)
    ws = load(w, columns, first_column, start, end, PITCH, BLOCK_K, EVEN, COPIES)
    return product(xs, tl.trans(ws), acc)


@kernel
def _stacked_sum(
    x: tensor, w: tensor, rows: tensor, columns: tensor, first_row: tensor, first_column: tensor,
    PITCH: tl.constexpr, WHOLE: tl.constexpr, OF: tl.constexpr, FIRST: tl.constexpr,
    GROUP: tl.constexpr, TILES: tl.constexpr, LEVELS: tl.constexpr, BLOCKS: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    COPIES: tl.constexpr,
) -> Any:  # fmt: skip
    """[BLOCK_M, BLOCK_N]: the sum over all tiles; all that wait do so in registers."""
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, first_row * 0
    for step in range(0, TILES * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        acc = _add_block(acc, x, w, rows, columns, first_row, first_column, tile, block, PITCH,
                         WHOLE, OF, FIRST, GROUP, EVEN, BLOCK_K, COPIES)  # fmt: skip
        if block == BLOCKS - 1:
            s0, s1, s2, s3, s4, s5, depth = push_tile(
                s0, s1, s2, s3, s4, s5, depth, acc, merges_after(tile, TILES, LEVELS), LEVELS
            )
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    return s0


@kernel
def _waiting_sum(
    x: tensor, w: tensor, waiting: tensor, rows: tensor, columns: tensor, first_row: tensor,
    first_column: tensor,
    PITCH: tl.constexpr, WHOLE: tl.constexpr, OF: tl.constexpr, FIRST: tl.constexpr,
    GROUP: tl.constexpr, TILES: tl.constexpr, LEVELS: tl.constexpr, BLOCKS: tl.constexpr,
    EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    HELD: tl.constexpr, SLOTS: tl.constexpr, COPIES: tl.constexpr, WARPS: tl.constexpr,
) -> Any:  # fmt: skip
    """The same; but for HELD of them, sums wait in memory."""
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    depth = first_row * 0
    leaf, pair, is_leaf, is_pair = acc, acc, depth > 0, depth > 0
    for step in range(0, TILES * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        acc = _add_block(acc, x, w, rows, columns, first_row, first_column, tile, block, PITCH,
                         WHOLE, OF, FIRST, GROUP, EVEN, BLOCK_K, COPIES)  # fmt: skip
        if TILES > 1:
            if (block == BLOCKS - 1) & (tile < TILES - 1):
                merges = merges_after(tile, TILES, LEVELS)
                makes_pair = is_leaf & (merges == 1)
                value, is_pair, left = add_held(complete(acc), leaf, pair, is_leaf, is_pair,
                                                merges, HELD)  # fmt: skip
                if SLOTS > 0:
                    value, depth = add_waiting(value, waiting, depth, left, BLOCK_M, BLOCK_N, WARPS)
                is_leaf = (merges == 0) & (HELD > 0)
                stays = is_leaf
                if HELD > 0:
                    leaf = value
                if HELD > 1:
                    pair, is_pair = tl.where(makes_pair, value, pair), is_pair | makes_pair
                    stays = is_leaf | makes_pair
                if SLOTS > 0:
                    if not stays:
                        depth = push_waiting(value, waiting, depth, BLOCK_M, BLOCK_N, WARPS)
                acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if TILES > 1:
        acc, is_pair, _ = add_held(acc, leaf, pair, is_leaf, is_pair, depth + 2, HELD)
    if SLOTS > 0:
        acc, depth = add_waiting(acc, waiting, depth, depth, BLOCK_M, BLOCK_N, WARPS)
    return acc


@entry(["num_rows"])
def _tree(
    x: tensor, w: tensor, bias: tensor, before: tensor, out: tensor, waiting: tensor,
    num_rows: tensor,
    N: tl.constexpr, PITCH: tl.constexpr, OUT_PITCH: tl.constexpr, WHOLE: tl.constexpr,
    OF: tl.constexpr, FIRST: tl.constexpr, GROUP: tl.constexpr, TILES: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HELD: tl.constexpr, SLOTS: tl.constexpr,
    COPIES: tl.constexpr, WARPS: tl.constexpr, HEIGHT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    COLUMNS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row_blocks = tl.cdiv(num_rows, BLOCK_M)
    if SLOTS > 0:
        waiting += tl.program_id(0).to(tl.int64) * (SLOTS * BLOCK_M * BLOCK_N)
    for index in range(tl.program_id(0), row_blocks * COLUMNS, tl.num_programs(0)):
        m, n = place(index, row_blocks, COLUMNS, HEIGHT)
        rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
        x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
        if HELD == _ALL:
            acc = _stacked_sum(x, w, x_rows, w_rows, m * BLOCK_M, n * BLOCK_N, PITCH, WHOLE, OF,
                               FIRST, GROUP, TILES, LEVELS, BLOCKS, EVEN, BLOCK_M, BLOCK_N,
                               BLOCK_K, COPIES)  # fmt: skip
        else:
            acc = _waiting_sum(x, w, waiting, x_rows, w_rows, m * BLOCK_M, n * BLOCK_N, PITCH,
                               WHOLE, OF, FIRST, GROUP, TILES, LEVELS, BLOCKS, EVEN, BLOCK_M,
                               BLOCK_N, BLOCK_K, HELD, SLOTS, COPIES, WARPS)  # fmt: skip
        finish(acc, bias, before, out, rows, columns, num_rows, N, OUT_PITCH)


def prompt_tree(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor, *, bounds: tuple[int, ...], group: int, tiling: PromptTiling,
    waiting: torch.Tensor | None, node: Span | None = None,
) -> None:  # fmt: skip
    """out [rows, N] = x [rows, K] times w [N, K], plus bias [N], plus `before` (out or None).

    Rounded once, to out's type. bounds: borders of all tiles, ir.tiles.tile_bounds of an MLP and
    its group; (0, K) is a plain product. node: x and w have the columns of these tiles alone, a
    node of the tree. Rows may be apart, those of x as far as those of w. waiting: float32, of
    waiting_size numbers for one program or more, None where that is 0; what is in it does not
    matter, and kernels that run one after the other may share it.
    """
    (rows, k), n = x.shape, w.shape[0]
    first, end = node or (0, len(bounds) - 1)
    assert k == bounds[end] - bounds[first], f"{k} columns for tiles [{first}, {end})"
    assert rows == 1 or x.stride(0) == w.stride(0), f"{x.stride(0)} and {w.stride(0)} apart"
    widest = widest_tile(bounds)
    are_alike = (bounds[-1] // group) % (len(bounds) - 1) == 0
    tiling = fitting(tiling, x, w, widest, is_even=are_alike)
    tiles = end - first
    place = (k, tiles, 0) if are_alike else (bounds[-1], len(bounds) - 1, first)
    blocks = -(-rows // tiling.block_m) * -(-n // tiling.block_n)
    programs = programs_of(tiling, blocks, x.device)
    if each := waiting_size(tiling, tiles, 1):
        assert waiting is not None, f"{tiles} tiles: sums have nowhere to wait"
        programs = min(programs, waiting.numel() // each)
        assert programs > 0, f"room for {waiting.numel()} numbers: one program wants {each}"
    xs, ws = sources(x, w, tiling)
    launch(
        _tree, (programs,), xs, ws, bias, before, out, waiting if each else None,
        rows, N=n, PITCH=w.stride(0), OUT_PITCH=out.stride(0),
        WHOLE=place[0], OF=place[1], FIRST=place[2],
        GROUP=group, TILES=tiles, LEVELS=levels(tiles),
        BLOCKS=-(-widest // tiling.block_k), EVEN=are_alike and widest % tiling.block_k == 0,
        HELD=tiling.held, SLOTS=waiting_slots(tiling, tiles), WARPS=tiling.warps,
        **constants(tiling),
    )  # fmt: skip
