"""Rotation of heads by a row's cosines and sines: halves, as Hugging Face has them."""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel


@kernel
def load_rotated(
    at: tensor, table: tensor, columns: tensor, is_in: tensor,
    HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr, HALF: tl.constexpr,
) -> Any:  # fmt: skip
    """float32 numbers of a head at `at`, pairs (i, i + ROTARY / 2) rotated, the rest as they are.

    columns broadcasts against is_in; table: HALF cosines, then HALF sines.
    """
    x = tl.load(at + columns, mask=is_in, other=0.0).to(tl.float32)
    if ROTARY == 0:
        return x
    is_low, is_turned = columns < ROTARY // 2, columns < ROTARY
    partner = tl.where(is_low, columns + ROTARY // 2, columns - ROTARY // 2)
    i = tl.where(is_low, columns, columns - ROTARY // 2)
    y = tl.load(at + partner, mask=is_in & is_turned, other=0.0).to(tl.float32)
    cosine = tl.load(table + i, mask=is_in & is_turned, other=1.0)
    sine = tl.load(table + HALF + i, mask=is_in & is_turned, other=0.0)
    return x * cosine + y * tl.where(is_low, -sine, sine)
