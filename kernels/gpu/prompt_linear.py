"""row_dot/1 for prompt rows: a matrix product with one order over K.

A program has BLOCK_M rows and BLOCK_N columns and walks K in blocks of BLOCK_K, one after the
other: an element is a chain over its own row and column, whatever the chunk or the neighbours.
Any shape of 1 or more; fast where K is whole blocks.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.prompt_blocks import finish, load_k, place
from plancc.kernels.gpu.prompt_tilings import PromptTiling, fitting, plain_tiling
from plancc.kernels.gpu.prompt_tree import prompt_tree

_HEIGHT = tl.constexpr(8)


@entry(["num_rows"])
def _linear(
    x: tensor, w: tensor, bias: tensor, before: tensor, out: tensor, num_rows: tensor,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    COLUMNS: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    m, n = place(tl.program_id(0), tl.num_programs(0) // COLUMNS, COLUMNS, _HEIGHT)
    rows, columns = m * BLOCK_M + tl.arange(0, BLOCK_M), n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_rows, w_rows = tl.minimum(rows, num_rows - 1), tl.minimum(columns, N - 1)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        xs = load_k(x, x_rows, k + ks, K, K, K % BLOCK_K == 0)
        ws = load_k(w, w_rows, k + ks, K, K, K % BLOCK_K == 0)
        acc = product(xs, tl.trans(ws), acc)
    finish(acc, bias, before, out, rows, columns, num_rows, N, N)


def prompt_linear(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor,
) -> None:  # fmt: skip
    """out [rows, N] = x [rows, K] times w [N, K], plus bias [N], plus `before` (out or None).

    All contiguous.
    """
    n, k = w.shape
    how = plain_tiling(x.element_size(), card_of(x.device), x.shape[0], n)
    how = fitting(how, x, w, k, is_even=True)
    if how.copies:
        prompt_tree(x, w, bias, before, out, bounds=(0, k), group=1, tiling=how, waiting=None)
    else:
        linear_by_pointers(x, w, bias, before, out, tiling=how)


def linear_by_pointers(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor, *, tiling: PromptTiling,
) -> None:  # fmt: skip
    """As prompt_linear, a program for every block; out may be float32 too."""
    n, k = w.shape
    programs = -(-x.shape[0] // tiling.block_m) * -(-n // tiling.block_n)
    launch(
        _linear, (programs,), x, w, bias, before, out, x.shape[0], N=n, K=k,
        BLOCK_M=tiling.block_m, BLOCK_N=tiling.block_n, BLOCK_K=tiling.block_k, warps=tiling.warps,
        stages=tiling.stages,
    )  # fmt: skip
