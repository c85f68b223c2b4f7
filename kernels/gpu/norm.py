"""rmsnorm/1 as decode has it: who writes a residual also writes what the next norm needs.

Beside the residual r of a row lie `gained` = r * gain, rounded, and `squares`: float32 sums of r^2
over chunks of CHUNK columns. The reader multiplies by 1 / sqrt(mean + eps) after its sum over K,
so the norm costs no pass. Sums of squares are trees of additions written out, so that every kernel
that makes them gives the same bits.
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel

CHUNK = 32
_CHUNK: tl.constexpr = tl.constexpr(CHUNK)


@kernel
def add_pairs(values: tensor, LEVELS: tl.constexpr) -> Any:
    """values [rows, n], n halved LEVELS times: neighbours are added, then theirs."""
    for _ in tl.static_range(LEVELS):
        left, right = tl.split(tl.reshape(values, [values.shape[0], values.shape[1] // 2, 2]))
        values = left + right
    return values


@kernel
def rms_scale(
    squares: tensor, rows: tensor, num_rows: tensor, eps: tensor,
    K: tl.constexpr, CHUNKS: tl.constexpr, LEVELS: tl.constexpr,
) -> Any:  # fmt: skip
    """[rows, 1]: 1 / sqrt(mean of r^2 + eps). CHUNKS is that of K, to a power of two: 2^LEVELS."""
    NUM: tl.constexpr = (K + _CHUNK - 1) // _CHUNK
    chunks = tl.arange(0, CHUNKS)
    parts = tl.load(
        squares + rows[:, None] * NUM + chunks[None, :],
        mask=(rows[:, None] < num_rows) & (chunks[None, :] < NUM),
        other=0.0,
    )
    total = add_pairs(parts, LEVELS)
    return tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(total, K * 1.0) + eps))


@kernel
def write_residual(
    r: tensor, residual: tensor, gained: tensor, squares: tensor, gains: tensor, rows: tensor,
    num_rows: tensor, first: tensor,
    N: tl.constexpr, WIDTH: tl.constexpr,
) -> Any:  # fmt: skip
    """Round r [rows, WIDTH], columns from `first` on, and write it, with what the next norm needs.

    gains [WIDTH]: of the next norm. first and WIDTH are whole chunks.
    """
    columns = first + tl.arange(0, WIDTH)
    NUM: tl.constexpr = (N + _CHUNK - 1) // _CHUNK
    at = rows[:, None] * N + columns[None, :]
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < N)
    rounded = tl.where(is_in, r, 0.0).to(residual.dtype.element_ty)
    tl.store(residual + at, rounded, mask=is_in)
    wide = rounded.to(tl.float32)
    product = (wide * gains.to(tl.float32)[None, :]).to(gained.dtype.element_ty)
    tl.store(gained + at, product, mask=is_in)
    sums = add_pairs(wide * wide, 5)
    chunks = first // _CHUNK + tl.arange(0, WIDTH // _CHUNK)
    tl.store(
        squares + rows[:, None] * NUM + chunks[None, :],
        sums,
        mask=(rows[:, None] < num_rows) & (chunks[None, :] < NUM),
    )
