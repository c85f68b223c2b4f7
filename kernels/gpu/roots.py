"""The rest of the tile tree: the roots of all ranks of a TP group, added as one device adds them.

Every rank that holds the residual has the same bits afterwards, and those of one device. Partial
rows are read where they lie, on another device too, past the first-level cache. Nothing overlaps
with what comes before, since that may be an event of another stream.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import can_overlap, launch, let_next_start
from plancc.kernels.gpu.norm import CHUNK, write_residual
from plancc.kernels.gpu.tree import push_tile

MAX_RANKS = 8
_PROMPT_COLUMNS = 1024


@kernel
def _part(
    p0: tensor, p1: tensor, p2: tensor, p3: tensor, p4: tensor, p5: tensor, p6: tensor, p7: tensor,
    RANK: tl.constexpr,
) -> Any:  # fmt: skip
    """The partial rows of a rank."""
    part = p0
    if RANK == 1:
        part = p1
    if RANK == 2:
        part = p2
    if RANK == 3:
        part = p3
    if RANK == 4:
        part = p4
    if RANK == 5:
        part = p5
    if RANK == 6:
        part = p6
    if RANK == 7:
        part = p7
    return part


@entry(["num_rows"])
def _add_roots(
    p0: tensor, p1: tensor, p2: tensor, p3: tensor, p4: tensor, p5: tensor, p6: tensor, p7: tensor,
    residual: tensor, gained: tensor, squares: tensor, gain: tensor, num_rows: tensor,
    N: tl.constexpr, ROOTS: tl.constexpr, RANKS: tl.constexpr, PLACES: tl.constexpr,
    COUNTS: tl.constexpr, MERGES: tl.constexpr, LEVELS: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, NEXT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    """RANKS, PLACES, COUNTS, MERGES, for each root: whose it is, its place among the roots of that
    rank, how many those are, how many nodes end with it."""
    first = tl.program_id(0) * WIDTH
    columns, rows = first + tl.arange(0, WIDTH), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    at = rows[:, None].to(tl.int64) * N + columns[None, :]
    let_next_start(NEXT)
    before = tl.load(residual + at, mask=is_in, other=0.0).to(tl.float32)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    s0, s1, s2, s3, s4, s5, depth = acc, acc, acc, acc, acc, acc, 0
    for i in tl.static_range(ROOTS):
        part = _part(p0, p1, p2, p3, p4, p5, p6, p7, RANKS[i])
        place = part + rows[:, None].to(tl.int64) * (COUNTS[i] * N) + PLACES[i] * N
        value = tl.load(place + columns[None, :], mask=is_in, other=0.0, cache_modifier=".cg")
        s0, s1, s2, s3, s4, s5, depth = push_tile(
            s0, s1, s2, s3, s4, s5, depth, value, MERGES[i], LEVELS
        )
    if gained is None:
        tl.store(residual + at, (before + s0).to(residual.dtype.element_ty), mask=is_in)
    else:
        gains = tl.load(gain + columns, mask=columns < N, other=0.0)
        write_residual(before + s0, residual, gained, squares, gains, rows, num_rows, first, N,
                       WIDTH)  # fmt: skip


def add_roots(
    parts: Sequence[torch.Tensor], merges: Sequence[int], residual: torch.Tensor,
    gained: torch.Tensor | None = None, squares: torch.Tensor | None = None,
    gain: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """residual [rows, N] += the sum of all roots, rounded once.

    parts: float32 [rows, roots, N] of each rank, in tile order; a view of fewer rows will do where
    memory of so many lies there, and what becomes of the others does not matter. merges: for each
    root of all of them how many nodes of the tree end with it, besides itself. gained and squares
    are written for the norm with `gain` that comes next, as in `join`; prompt rows have none.
    """
    rows, n = residual.shape
    assert 1 <= len(parts) <= MAX_RANKS, f"{len(parts)} ranks: expected 1 to {MAX_RANKS}"
    counts = [part.shape[1] for part in parts]
    of = [(rank, place, count) for rank, count in enumerate(counts) for place in range(count)]
    ranks, places, sizes = zip(*of, strict=True)
    padded = (*parts, *(parts[0],) * (MAX_RANKS - len(parts)))
    height, width = (1, _PROMPT_COLUMNS) if gained is None else (4, CHUNK)
    launch(
        _add_roots, (-(-n // width), -(-rows // height)), *padded, residual, gained, squares, gain,
        rows, N=n, ROOTS=len(ranks), RANKS=ranks, PLACES=places,
        COUNTS=sizes, MERGES=tuple(merges), LEVELS=_levels(merges), ROWS=height, WIDTH=width,
        NEXT=can_overlap(), warps=4, overlaps=False,
    )  # fmt: skip


def _levels(merges: Sequence[int]) -> int:
    """Sums that wait at once, at most: before the last root is merged, or beneath it."""
    depth = deepest = 0
    for count in merges:
        deepest = max(deepest, depth)
        depth += 1 - count
    assert depth == 1, "the roots are not the leaves of one tree"
    return max(1, deepest)
