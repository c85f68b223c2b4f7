"""row_dot/1 in decode: a norm's rows times a matrix, up to 64 rows, each weight read once.

Refused: more than 64 rows. Any N and K of 1 or more; fast where K is a multiple of BLOCK_K.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.ring import takes_ring
from plancc.kernels.gpu.ring_linear import ring_linear
from plancc.kernels.gpu.sums import sum_over_k
from plancc.kernels.gpu.tilings import Tiling, padded_rows, power_of_two


@entry(["num_rows"])
def _linear(
    gained: tensor, squares: tensor, w: tensor, bias: tensor, out: tensor, num_rows: tensor,
    eps: tensor,
    N: tl.constexpr, K: tl.constexpr, CHUNKS: tl.constexpr, LEVELS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr,
    EARLY: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    wait_for_previous(OVERLAP)
    rows = tl.arange(0, ROWS)
    acc, scale = sum_over_k(gained, squares, w, num_rows, columns, eps, N, K, CHUNKS, LEVELS, ROWS,
                            BLOCK_N, BLOCK_K, WIDE, EARLY, OVERLAP)  # fmt: skip
    acc = acc * scale
    if bias is not None:
        acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    tl.store(
        out + rows[:, None].to(tl.int64) * N + columns[None, :],
        acc.to(out.dtype.element_ty),
        mask=(rows[:, None] < num_rows) & (columns[None, :] < N),
    )


def linear(
    gained: torch.Tensor, squares: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None,
    out: torch.Tensor, *, eps: float, tiling: Tiling,
) -> None:  # fmt: skip
    """out [rows, N] = norm(r) times w [N, K], plus bias [N]; rounded to out's format.

    gained [rows, K] and squares [rows, ceil(K / CHUNK)] are what kernels.gpu.norm says of r.
    """
    num_rows, (n, k) = gained.shape[0], w.shape
    if takes_ring(tiling, (0, k)):
        ring_linear(gained, squares, w, bias, out, eps=eps, tiling=tiling)
        return
    chunks = power_of_two(-(-k // CHUNK))
    launch(
        _linear, (-(-n // tiling.block_n),), gained, squares, w, bias, out, num_rows, eps,
        N=n, K=k, CHUNKS=chunks, LEVELS=chunks.bit_length() - 1, ROWS=padded_rows(num_rows),
        **tiling.constants(),
    )  # fmt: skip
