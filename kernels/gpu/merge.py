"""How the splits of one K head become one: in order, RUN of them at a time.

All loads of a run are on their way at once. Where a run begins does not depend on how many splits
there are, and one past the last adds zero: a row's bits depend on its own length alone.
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.attend import LEAST
from plancc.kernels.gpu.jit import kernel

RUN = tl.constexpr(16)


@kernel
def merge(
    sums: tensor, peaks: tensor, num: tensor,
    SHARED: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
) -> Any:  # fmt: skip
    """[HEADS, WIDTH] of sum / mass over all splits; HEADS and WIDTH are padded.

    sums: [splits, SHARED, HEAD_DIM]; peaks: [splits, 2, SHARED], peaks and masses.
    """
    i, h, d = tl.arange(0, RUN), tl.arange(0, HEADS), tl.arange(0, WIDTH)
    peak, mass = tl.full([HEADS], LEAST, tl.float32), tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, WIDTH], tl.float32)
    places = h[:, None] * HEAD_DIM + d[None, :]
    is_place = (h[:, None] < SHARED) & (d[None, :] < HEAD_DIM)
    for first in range(0, num, RUN):
        split = first + i
        at, is_in = split[:, None] * 2 * SHARED + h[None, :], (split < num)[:, None] & (h < SHARED)
        theirs = tl.load(peaks + at, mask=is_in, other=LEAST, cache_modifier=".cg")
        masses = tl.load(peaks + at + SHARED, mask=is_in, other=0.0, cache_modifier=".cg")
        parts = tl.load(
            sums + split[:, None, None] * SHARED * HEAD_DIM + places[None, :, :],
            mask=(split < num)[:, None, None] & is_place[None, :, :], other=0.0,
            cache_modifier=".cg",
        )  # fmt: skip
        top = tl.maximum(peak, tl.max(theirs, 0))
        old, weights = tl.exp2(peak - top), tl.exp2(theirs - top[None, :])
        peak, mass = top, mass * old + tl.sum(masses * weights, 0)
        acc = acc * old[:, None] + tl.sum(parts * weights[:, :, None], 0)
    return acc / tl.where(mass > 0, mass, 1.0)[:, None]
