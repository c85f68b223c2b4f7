"""tile_tree/1 and row_dot/1 for prompt rows in large blocks: candidates for prompt_down and others.

A program walks output blocks; in each, all tiles of K in one loop. With blocks this large, sums of
finished subtrees find no room in registers: most wait in scratch (waiting.py). The order of the
sums is that of tree.py whatever the tiling. One tile is a plain product.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.mlp import silu
from plancc.kernels.gpu.prompt_linear import load_k
from plancc.kernels.gpu.prompt_tilings import (
    GATE_UP,
    PromptTiling,
    constants,
    fitting,
    levels,
    resident_programs,
    sources,
)
from plancc.kernels.gpu.tree import merges_after, tile_start
from plancc.kernels.gpu.waiting import add_held, add_waiting, complete, push_waiting


@kernel
def _place(index: tensor, row_blocks: tensor, COLUMNS: tl.constexpr, HEIGHT: tl.constexpr) -> Any:
    """(row block, column block) of an output block."""
    group, inside = index // (HEIGHT * COLUMNS), index % (HEIGHT * COLUMNS)
    height = tl.minimum(row_blocks - group * HEIGHT, HEIGHT)
    return group * HEIGHT + inside % height, inside // height


@kernel
def _load(
    x: tensor, rows: tensor, first: tensor, start: tensor, end: tensor, K: tl.constexpr,
    BLOCK_K: tl.constexpr, EVEN: tl.constexpr, COPIES: tl.constexpr,
) -> Any:  # fmt: skip
    """BLOCK_K columns of x from start on, of `rows`, which begin at `first`."""
    if COPIES:
        block = x.load([first, start])
    else:
        block = load_k(x, rows, start + tl.arange(0, BLOCK_K), end, K, EVEN)
    return block


@kernel
def _sum_block(
    x: tensor, w: tensor, scratch: tensor, first_row: tensor, first_column: tensor,
    num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HELD: tl.constexpr, COPIES: tl.constexpr,
    WARPS: tl.constexpr,
) -> Any:  # fmt: skip
    """[BLOCK_M, BLOCK_N]: the sum over all tiles."""
    rows = tl.minimum(first_row + tl.arange(0, BLOCK_M), num_rows - 1)
    columns = tl.minimum(first_column + tl.arange(0, BLOCK_N), N - 1)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    leaf, pair, is_leaf, is_pair, depth = acc, acc, num_rows < 0, num_rows < 0, num_rows * 0
    for step in range(0, TILES * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        start = tile_start(tile, K, TILES, GROUP) + block * BLOCK_K
        end = tile_start(tile + 1, K, TILES, GROUP)
        xs = _load(x, rows, first_row, start, end, K, BLOCK_K, EVEN, COPIES)
        ws = _load(w, columns, first_column, start, end, K, BLOCK_K, EVEN, COPIES)
        acc = product(xs, tl.trans(ws), acc)
        if (block == BLOCKS - 1) & (tile < TILES - 1):
            merges = merges_after(tile, TILES, LEVELS)
            makes_pair = is_leaf & (merges == 1)
            value, is_pair, left = add_held(complete(acc), leaf, pair, is_leaf, is_pair, merges,
                                             HELD)  # fmt: skip
            value, depth = add_waiting(value, scratch, depth, left, BLOCK_M, BLOCK_N, WARPS)
            is_leaf = (merges == 0) & (HELD > 0)
            stays = is_leaf
            if HELD > 0:
                leaf = value
            if HELD > 1:
                pair, is_pair = tl.where(makes_pair, value, pair), is_pair | makes_pair
                stays = is_leaf | makes_pair
            if not stays:
                depth = push_waiting(value, scratch, depth, BLOCK_M, BLOCK_N, WARPS)
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    acc, is_pair, _ = add_held(acc, leaf, pair, is_leaf, is_pair, depth + 2, HELD)
    acc, depth = add_waiting(acc, scratch, depth, depth, BLOCK_M, BLOCK_N, WARPS)
    return acc


@entry(["num_rows"])
def _tree(
    x: tensor, w: tensor, bias: tensor, before: tensor, out: tensor, scratch: tensor,
    num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, HELD: tl.constexpr, COPIES: tl.constexpr,
    WARPS: tl.constexpr, HEIGHT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    COLUMNS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    row_blocks = tl.cdiv(num_rows, BLOCK_M)
    scratch += tl.program_id(0).to(tl.int64) * (LEVELS * BLOCK_M * BLOCK_N)
    for index in range(tl.program_id(0), row_blocks * COLUMNS, tl.num_programs(0)):
        m, n = _place(index, row_blocks, COLUMNS, HEIGHT)
        acc = _sum_block(x, w, scratch, m * BLOCK_M, n * BLOCK_N, num_rows, N, K, TILES, GROUP,
                         LEVELS, BLOCKS, EVEN, BLOCK_M, BLOCK_N, BLOCK_K, HELD, COPIES,
                         WARPS)  # fmt: skip
        rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
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
    BLOCK_K: tl.constexpr, COPIES: tl.constexpr, HEIGHT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    COLUMNS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    EVEN: tl.constexpr = K % BLOCK_K == 0
    row_blocks = tl.cdiv(num_rows, BLOCK_M)
    for index in range(tl.program_id(0), row_blocks * COLUMNS, tl.num_programs(0)):
        m, n = _place(index, row_blocks, COLUMNS, HEIGHT)
        rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
        x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
        gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for k in range(0, K, BLOCK_K):
            xs = _load(x, x_rows, m * BLOCK_M, k, K, K, BLOCK_K, EVEN, COPIES)
            gates = _load(w, w_rows, n * BLOCK_N, k, K, K, BLOCK_K, EVEN, COPIES)
            ups = _load(w, w_rows + N, n * BLOCK_N + N, k, K, K, BLOCK_K, EVEN, COPIES)
            gate, up = product(xs, tl.trans(gates), gate), product(xs, tl.trans(ups), up)
        is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
        at = rows[:, None].to(tl.int64) * N + columns[None, :]
        tl.store(out + at, (silu(gate) * up).to(out.dtype.element_ty), mask=is_in)


def prompt_tree(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor, *, bounds: tuple[int, ...], group: int, tiling: PromptTiling,
    scratch: torch.Tensor,
) -> None:  # fmt: skip
    """out [rows, N] = x [rows, K] times w [N, K], plus bias [N], plus `before` (out or None).

    Rounded once, to out's type. bounds: borders of the tiles, ir.tiles.tile_bounds of K and group;
    (0, K) is a plain product. scratch: float32, scratch_size of `tiling`; what is in it does not
    matter, and it may be shared by kernels that run one after the other.
    """
    (n, k), tiles = w.shape, len(bounds) - 1
    widest = max(end - first for first, end in pairwise(bounds))
    tiling = fitting(tiling, x, widest)
    is_even = (k // group) % tiles == 0 and widest % tiling.block_k == 0
    tiling = replace(tiling, copies=tiling.copies and is_even)
    sums = tiling.block_m * tiling.block_n
    blocks = -(-x.shape[0] // tiling.block_m) * -(-n // tiling.block_n)
    programs = min(blocks, resident_programs(tiling, x.device),
                   scratch.numel() // (levels(tiles) * sums))  # fmt: skip
    assert programs > 0, f"scratch of {scratch.numel()} floats: one program wants more"
    xs, ws = sources(x, w, tiling)
    launch(
        _tree, (programs,), xs, ws, bias, before, out, scratch, x.shape[0], N=n, K=k,
        TILES=tiles, GROUP=group, LEVELS=levels(tiles), BLOCKS=-(-widest // tiling.block_k),
        EVEN=is_even, HELD=tiling.held, WARPS=tiling.warps, **constants(tiling),
    )  # fmt: skip


def prompt_gate_up(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, tiling: PromptTiling = GATE_UP
) -> None:
    """out [rows, N] = silu(x gate) * (x up), rounded; w [2 N, K]: gate, then up."""
    n, k = w.shape[0] // 2, w.shape[1]
    tiling = fitting(tiling, x, k)
    tiling = replace(tiling, copies=tiling.copies and k % tiling.block_k == 0)
    blocks = -(-x.shape[0] // tiling.block_m) * -(-n // tiling.block_n)
    xs, ws = sources(x, w, tiling)
    launch(_gate_up, (min(blocks, resident_programs(tiling, x.device)),), xs, ws, out, x.shape[0],
           N=n, K=k, **constants(tiling))  # fmt: skip
