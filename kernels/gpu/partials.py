"""tile_tree/1 in decode on a rank of a TP group: the sums of its tiles, one for each root.

A root is a maximal node of the tree inside the rank's run of tiles. Blocks, their order and the
order of additions are those of `join`, so `add_roots` gets the numbers that one device adds. Two
programs share the run: cut between roots, or in the middle of one, whose halves meet as in `join`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.halves import add_halves
from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous
from plancc.kernels.gpu.ring import takes_ring
from plancc.kernels.gpu.ring_partials import ring_partials
from plancc.kernels.gpu.sums import as_rows, load_block, multiply, zeros
from plancc.kernels.gpu.tilings import Tiling, padded_rows
from plancc.kernels.gpu.tree import levels, merges_within, push_tile, share_start, widest_tile

Span = tuple[int, int]


@entry(["num_rows"])
def _partials(
    x: tensor, w: tensor, out: tensor, halves: tensor, counters: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr, TILES: tl.constexpr,
    GROUP: tl.constexpr, FIRST: tl.constexpr, CUT: tl.constexpr, END: tl.constexpr,
    ROOTS: tl.constexpr, SECOND: tl.constexpr, SPLIT: tl.constexpr, WALK: tl.constexpr,
    LEVELS: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    piece = tl.program_id(1)
    first, end = tl.where(piece == 0, FIRST, CUT), tl.where(piece == 0, CUT, END)
    root = piece * SECOND
    wait_for_previous(OVERLAP)
    rows, ks = tl.arange(0, ROWS), tl.arange(0, BLOCK_K)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = rows[:, None] * N + columns[None, :]
    to = rows[:, None] * (ROOTS * N) + columns[None, :]
    EVEN: tl.constexpr = ((WHOLE // GROUP) % TILES == 0) & ((WHOLE // TILES) % BLOCK_K == 0)
    acc = zeros(ROWS, BLOCK_N, WIDE)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, 0
    for step in range(first * BLOCKS, end * BLOCKS):
        tile, block = step // BLOCKS, step % BLOCKS
        stop = share_start(tile + 1, FIRST, WHOLE, TILES, GROUP)
        k = share_start(tile, FIRST, WHOLE, TILES, GROUP) + block * BLOCK_K + ks
        ws = load_block(w, K, columns, N, k, stop, N % BLOCK_N == 0, EVEN)
        xs = load_block(x, K, rows, num_rows, k, stop, False, EVEN)
        acc = multiply(xs, ws, acc, WIDE)
        if EARLY > 0:
            if step == end * BLOCKS - 1 - EARLY:
                let_next_start(OVERLAP)
        if block == BLOCKS - 1:
            merges, is_root = merges_within(tile, first, end, TILES, WALK)
            s0, s1, s2, s3, s4, s5, depth = push_tile(
                s0, s1, s2, s3, s4, s5, depth, acc, merges, LEVELS
            )
            acc = zeros(ROWS, BLOCK_N, WIDE)
            if is_root:
                is_half = root == SPLIT
                tl.store(out + to + root * N, as_rows(s0, WIDE), mask=is_in & (not is_half))
                if SPLIT >= 0:
                    tl.store(halves + piece * num_rows * N + at, as_rows(s0, WIDE),
                             mask=is_in & is_half)  # fmt: skip
                root += 1
                depth = 0
    if SPLIT >= 0:
        is_last, total = add_halves(halves, counters, at, is_in, num_rows, N)
        tl.store(out + to + SPLIT * N, total, mask=is_in & is_last)


@dataclass(frozen=True)
class _Cut:
    """The run is cut before tile `at`: the second half's first root is `second`. It has a part of
    root `split` where that is cut; -1 where none is."""

    at: int
    second: int
    split: int


def partials(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, tiling: Tiling, roots: Sequence[Span],
    halves: torch.Tensor, counters: torch.Tensor, bounds: tuple[int, ...], group: int,
) -> None:  # fmt: skip
    """out float32 [rows, roots, N]: for each root the sum over its tiles of x times w.

    x [rows, K], w [N, K] have the columns of the run of tiles that `roots`, in order, are. bounds:
    of all tiles of the model. halves: float32, two times rows x N; counters as in `join`.
    """
    num_rows, (n, k), tiles = x.shape[0], w.shape, len(bounds) - 1
    first, end = roots[0][0], roots[-1][1]
    assert k == bounds[end] - bounds[first], f"{k} columns for tiles [{first}, {end})"
    cut = _cut(roots, tiling.pieces)
    pieces = 1 if cut.at == end else 2
    shorter = min(cut.at - first, end - cut.at) if pieces == 2 else end - first
    spans = {
        "TILES": tiles, "FIRST": first, "CUT": cut.at, "END": end, "ROOTS": len(roots),
        "SECOND": cut.second, "SPLIT": cut.split, "WALK": levels(tiles),
        "LEVELS": levels(max(b - a for a, b in roots)),
    }  # fmt: skip
    if takes_ring(tiling, bounds):
        ring_partials(x, w, out, tiling=tiling, halves=halves, counters=counters, width=bounds[1],
                      pieces=pieces, shorter=shorter, **spans)  # fmt: skip
        return
    blocks = -(-widest_tile(bounds) // tiling.block_k)
    constants = tiling.constants() | {"EARLY": min(tiling.early, shorter * blocks - 1)}
    launch(
        _partials, (-(-n // tiling.block_n), pieces), x, w, out, halves, counters, num_rows, N=n,
        K=k, WHOLE=bounds[-1], GROUP=group, BLOCKS=blocks, ROWS=padded_rows(num_rows), **spans,
        **constants,
    )  # fmt: skip


def _cut(roots: Sequence[Span], pieces: int) -> _Cut:
    """Where the longer half is shortest; between roots rather than within one. At the end, where
    there is one piece or one tile."""
    first, end = roots[0][0], roots[-1][1]
    if pieces == 1 or end - first == 1:
        return _Cut(end, 0, -1)
    found = [_Cut(a, root, -1) for root, (a, _) in enumerate(roots) if root]
    found += [_Cut((a + b + 1) // 2, root, root) for root, (a, b) in enumerate(roots) if b - a > 1]
    return min(found, key=lambda cut: max(cut.at - first, end - cut.at))
