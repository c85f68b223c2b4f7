"""rmsnorm/1 of prompt rows: one program a row, whatever the chunk. Any width of 1 or more."""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, wait_for_previous
from plancc.kernels.gpu.tilings import power_of_two


@entry()
def _norm(
    x: tensor, gain: tensor, out: tensor, eps: tensor,
    N: tl.constexpr, WIDTH: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    r = tl.load(x + row * N + columns, mask=columns < N, other=0.0).to(tl.float32)
    gains = tl.load(gain + columns, mask=columns < N, other=0.0).to(tl.float32)
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(tl.sum(r * r, 0), N * 1.0) + eps))
    tl.store(out + row * N + columns, (r * scale * gains).to(out.dtype.element_ty),
             mask=columns < N)  # fmt: skip


def norm(x: torch.Tensor, gain: torch.Tensor, out: torch.Tensor, *, eps: float) -> None:
    """out [rows, N] = x / sqrt(mean(x^2) + eps) * gain, rounded once."""
    width = power_of_two(x.shape[1])
    launch(_norm, (x.shape[0],), x, gain, out, eps, N=x.shape[1], WIDTH=width, warps=8)
