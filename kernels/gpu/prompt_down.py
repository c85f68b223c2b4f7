"""tile_tree/1 for prompt rows: the sum over an MLP's tiles, joined to the residual.

As tree.py: sums of finished subtrees wait in registers, so the blocks are narrow.
"""

from itertools import pairwise
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.prompt_linear import load_k, place
from plancc.kernels.gpu.tree import merges_after, push_tile, tile_start


@entry(["num_rows"])
def _down(
    x: tensor, w: tensor, residual: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    m, n = place(num_rows, N, BLOCK_M, BLOCK_N)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, m * 0
    for step in range(0, TILES * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        end = tile_start(tile + 1, K, TILES, GROUP)
        k = tile_start(tile, K, TILES, GROUP) + block * BLOCK_K + ks
        acc = product(load_k(x, x_rows, k, end, K, EVEN),
                      tl.trans(load_k(w, w_rows, k, end, K, EVEN)), acc)  # fmt: skip
        if block == BLOCKS - 1:
            s0, s1, s2, s3, s4, s5, depth = push_tile(
                s0, s1, s2, s3, s4, s5, depth, acc, merges_after(tile, TILES, LEVELS), LEVELS
            )
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = residual + rows[:, None].to(tl.int64) * N + columns[None, :]
    before = tl.load(at, mask=is_in, other=0.0).to(tl.float32)
    tl.store(at, (before + s0).to(residual.dtype.element_ty), mask=is_in)


def prompt_down(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, *, bounds: tuple[int, ...], group: int
) -> None:
    """residual [rows, N] += x [rows, K] times w [N, K], rounded once; bounds as in join.join."""
    (n, k), tiles = w.shape, len(bounds) - 1
    sizes = down_sizes(x.element_size(), bounds, group)
    programs = -(-x.shape[0] // sizes["BLOCK_M"]) * -(-n // sizes["BLOCK_N"])
    launch(
        _down, (programs,), x, w, residual, x.shape[0], N=n, K=k, TILES=tiles, GROUP=group,
        LEVELS=max(1, (tiles - 1).bit_length()), **sizes,
    )  # fmt: skip


def down_sizes(itemsize: int, bounds: tuple[int, ...], group: int) -> dict[str, Any]:
    """How the product is cut, by the tiles of the whole MLP: BLOCK_K is the step of every sum, in a
    share of them too."""
    tiles, widest = len(bounds) - 1, max(end - first for first, end in pairwise(bounds))
    is_wide = itemsize == 4
    block_m, block_n, most = (32, 32, 32) if is_wide else (128, 64, 128)
    block_k = min(most, max(32, widest & -widest))
    is_even = all((end - first) % block_k == 0 for first, end in pairwise(bounds)) and (
        (bounds[-1] // group) % tiles == 0
    )
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "EVEN": is_even,
            "BLOCKS": -(-widest // block_k), "warps": 4 if is_wide else 8,
            "stages": 2 if is_wide else 3}  # fmt: skip
