"""tile_tree/1 for prompt rows on a rank of a TP group: the sums of its tiles, one for each root.

As partials.py is to `join`, so is this to `prompt_down`: the same blocks over K in the same order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.prompt_down import down_sizes
from plancc.kernels.gpu.prompt_linear import load_k, place
from plancc.kernels.gpu.tree import merges_within, push_tile, share_start

Span = tuple[int, int]


@entry(["num_rows"])
def _partials(
    x: tensor, w: tensor, out: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, TILES: tl.constexpr,
    GROUP: tl.constexpr, FIRST: tl.constexpr, END: tl.constexpr, ROOTS: tl.constexpr,
    WALK: tl.constexpr, LEVELS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    m, n = place(num_rows, N, BLOCK_M, BLOCK_N)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = out + rows[:, None].to(tl.int64) * (ROOTS * N) + columns[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, m * 0
    root = m * 0
    for step in range(FIRST * BLOCKS, END * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        stop = share_start(tile + 1, FIRST, WHOLE, TILES, GROUP)
        k = share_start(tile, FIRST, WHOLE, TILES, GROUP) + block * BLOCK_K + ks
        acc = product(load_k(x, x_rows, k, stop, K, EVEN),
                      tl.trans(load_k(w, w_rows, k, stop, K, EVEN)), acc)  # fmt: skip
        if block == BLOCKS - 1:
            merges, is_root = merges_within(tile, FIRST, END, TILES, WALK)
            s0, s1, s2, s3, s4, s5, depth = push_tile(
                s0, s1, s2, s3, s4, s5, depth, acc, merges, LEVELS
            )
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            if is_root:
                tl.store(at + root * N, s0, mask=is_in)
                root += 1
                depth = 0


def prompt_partials(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, roots: Sequence[Span],
    bounds: tuple[int, ...], group: int,
) -> None:  # fmt: skip
    """out float32 [rows, roots, N] from x [rows, K] and w [N, K]: see partials.partials."""
    (n, k), tiles = w.shape, len(bounds) - 1
    first, end = roots[0][0], roots[-1][1]
    assert k == bounds[end] - bounds[first], f"{k} columns for tiles [{first}, {end})"
    sizes = down_sizes(x.element_size(), bounds, group)
    largest = max(b - a for a, b in roots)
    programs = -(-x.shape[0] // sizes["BLOCK_M"]) * -(-n // sizes["BLOCK_N"])
    launch(
        _partials, (programs,), x, w, out, x.shape[0], N=n, K=k, WHOLE=bounds[-1], TILES=tiles,
        GROUP=group, FIRST=first, END=end, ROOTS=len(roots), WALK=max(1, (tiles - 1).bit_length()),
        LEVELS=max(1, (largest - 1).bit_length()), **sizes,
    )  # fmt: skip
