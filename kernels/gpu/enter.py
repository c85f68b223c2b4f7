"""gather/1: a segment's rows, from the embedding or from another segment, and what begins a step.

Writes the residual as it is, what the first norm needs, and the cosines and sines of the rows'
positions: position x frequency in float64, times the attention factor, rounded once to float32.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous
from plancc.kernels.gpu.norm import write_residual
from plancc.kernels.gpu.tilings import power_of_two


@kernel
def _write_angles(
    position: tensor, row: tensor, inv_freq: tensor, factors: tensor, angles: tensor,
    stride: tensor,
    ROPES: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr,
) -> Any:  # fmt: skip
    """angles [ropes, rows, 2, HALF]: cosines, then sines."""
    i = tl.arange(0, HALF_PAD)
    for rope in tl.static_range(ROPES):
        rates = tl.load(inv_freq + rope * HALF + i, mask=i < HALF, other=0.0)
        factor = tl.load(factors + rope)
        angle = position.to(tl.float64) * rates
        at = angles + rope * stride + row.to(tl.int64) * 2 * HALF + i
        tl.store(at, (tl.cos(angle) * factor).to(tl.float32), mask=i < HALF)
        tl.store(at + HALF, (tl.sin(angle) * factor).to(tl.float32), mask=i < HALF)


@entry(["stride"])
def _enter(
    source: tensor, token_ids: tensor, positions: tensor, residual: tensor, gained: tensor,
    squares: tensor, gain: tensor, inv_freq: tensor, factors: tensor, angles: tensor,
    chunk: tensor, stride: tensor,
    N: tl.constexpr, WIDTH: tl.constexpr, ROPES: tl.constexpr, HALF: tl.constexpr,
    HALF_PAD: tl.constexpr, LAST: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    row = tl.program_id(0)
    at = row.to(tl.int64)
    if positions is not None:
        position = tl.load(positions + row)
    else:
        position, last = tl.load(chunk) + row, tl.load(chunk + 1).to(tl.int64) - 1
        at = last if LAST else tl.minimum(at, last)
    _write_angles(position, row, inv_freq, factors, angles, stride, ROPES, HALF, HALF_PAD)
    if token_ids is not None:
        at = tl.maximum(tl.load(token_ids + at), 0).to(tl.int64)  # -1: nobody will look at it
    columns = tl.arange(0, WIDTH)
    r = tl.load(source + at * N + columns, mask=columns < N, other=0.0).to(tl.float32)
    gains = tl.load(gain + columns, mask=columns < N, other=0.0)
    write_residual(r[None, :], residual, gained, squares, gains, row + tl.arange(0, 1), row + 1,
                   row * 0, N, WIDTH)  # fmt: skip


def enter(
    source: torch.Tensor, token_ids: torch.Tensor | None, positions: torch.Tensor | None,
    residual: torch.Tensor, gained: torch.Tensor, squares: torch.Tensor, gain: torch.Tensor,
    inv_freq: torch.Tensor, factors: torch.Tensor, angles: torch.Tensor,
    chunk: torch.Tensor | None = None, *, is_last: bool = False,
) -> None:  # fmt: skip
    """residual [rows, N] = rows of `source`: those of token_ids, or the first ones.

    It follows what came from elsewhere, so it overlaps with nothing before it.
    positions: int32 [rows] on the device; None for the rows of a chunk, which is as in
    prompt_attention: where it has fewer, its last row stands again in the others, so that they are
    numbers too. is_last: one row, the chunk's last. inv_freq: float64 [ropes, half]; factors:
    float64 [ropes]; angles: float32 [ropes, rows or more, 2, half].
    """
    assert (positions is None) != (chunk is None), "rows of decode or of a chunk"
    num_rows, n = residual.shape
    ropes, half = inv_freq.shape
    launch(
        _enter, (num_rows,), source, token_ids, positions, residual, gained, squares, gain,
        inv_freq, factors, angles, chunk, angles.stride(0), N=n,
        WIDTH=max(32, power_of_two(n)), ROPES=ropes, HALF=half,
        HALF_PAD=power_of_two(max(half, 1)), LAST=is_last, warps=8, overlaps=False,
    )  # fmt: skip
