"""How the splits of a head become one: RUN of them at a time, all loads of a run at once.

A split past the last adds zero, and where a run begins does not depend on how many splits there
are: a row's bits depend on its own length alone. One split alone is as it was.
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.attend import LEAST
from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import let_next_start, wait_for_previous

RUN = tl.constexpr(64)


@kernel
def merge_two(
    peak: tensor, mass: tensor, acc: tensor, other_peak: tensor, other_mass: tensor,
    other_acc: tensor,
) -> Any:  # fmt: skip
    """(peak, mass, acc) of both halves of a split; one without a key adds zero."""
    top = tl.maximum(peak, other_peak)
    old, new = tl.exp2(peak - top), tl.exp2(other_peak - top)
    return top, mass * old + other_mass * new, acc * old[:, None] + other_acc * new[:, None]


@entry(["window", "max_splits"])
def merge(
    positions: tensor, sums: tensor, peaks: tensor, out: tensor, window: tensor, max_splits: tensor,
    NUM_HEADS: tl.constexpr, SHARED: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
    RING: tl.constexpr, SPLIT: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    """out [rows, heads, dim]: sum / mass over the splits of a row, a program a head.

    sums: [rows, kv_heads, max_splits, SHARED, dim]; peaks: [.., max_splits, 2, SHARED].
    """
    let_next_start(OVERLAP)
    head, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    seen = tl.maximum(position - window + 1, 0) if RING else position * 0
    num = position // SPLIT - seen // SPLIT + 1
    item = (row * (NUM_HEADS // SHARED) + head // SHARED) * max_splits
    i, d = tl.arange(0, RUN), tl.arange(0, WIDTH)
    peak, mass = tl.full([], LEAST, tl.float32), tl.full([], 0.0, tl.float32)
    acc = tl.zeros([WIDTH], tl.float32)
    wait_for_previous(OVERLAP)
    for first in range(0, num, RUN):
        split, is_in = item + first + i, first + i < num
        at = peaks + split * 2 * SHARED + head % SHARED
        theirs = tl.load(at, mask=is_in, other=LEAST)
        masses = tl.load(at + SHARED, mask=is_in, other=0.0)
        parts = tl.load(sums + (split * SHARED + head % SHARED)[:, None] * HEAD_DIM + d[None, :],
                        mask=is_in[:, None] & (d[None, :] < HEAD_DIM), other=0.0)  # fmt: skip
        top = tl.maximum(peak, tl.max(theirs, 0))
        old, weights = tl.exp2(peak - top), tl.exp2(theirs - top)
        peak, mass = top, mass * old + tl.sum(masses * weights, 0)
        acc = acc * old + tl.sum(parts * weights[:, None], 0)
    at = out + (row * NUM_HEADS + head) * HEAD_DIM + d
    tl.store(at, (acc / mass).to(out.dtype.element_ty), mask=(d < HEAD_DIM) & (position >= 0))
