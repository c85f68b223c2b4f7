"""A sum over K whose halves two programs have: whoever ends last adds left + right.

A launch has program_id(1) of 0 for the left half and 1 for the right one. Each stores its own in
`halves`, float32 [2, rows, N], then counts itself at its place of N in `counters`, which are zeros
before and after.
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel


@kernel
def ends_last(counter: tensor) -> Any:
    """Whether this program is the last of two: then it sees what both have stored."""
    tl.debug_barrier()  # all threads of this program have stored
    return tl.atomic_add(counter, 1, sem="acq_rel") == 1


@kernel
def load_half(at: tensor, is_in: tensor) -> Any:
    """What a program on another multiprocessor may have stored: past the first-level cache, which
    may have older numbers."""
    return tl.load(at, mask=is_in, other=0.0, cache_modifier=".cg")


@kernel
def add_halves(
    halves: tensor, counters: tensor, at: tensor, is_in: tensor, num_rows: tensor, N: tl.constexpr
) -> Any:
    """(does this program end last, left + right if so) once it has stored its half.

    at: places in a half, of those that are `is_in`.
    """
    counter = counters + tl.program_id(0)
    is_last = ends_last(counter)
    left = load_half(halves + at, is_in & is_last)
    right = load_half(halves + num_rows * N + at, is_in & is_last)
    tl.store(counter, 0, mask=is_last)
    return is_last, left + right


@kernel
def add_other_half(
    half: tensor, halves: tensor, counters: tensor, at: tensor, is_in: tensor, num_rows: tensor,
    N: tl.constexpr,
) -> Any:  # fmt: skip
    """The same where a program still has its half in registers: it stores that, and loads but one.
    Which of the two is the left one does not matter to the bits."""
    piece = tl.program_id(1)
    tl.store(halves + piece * num_rows * N + at, half, mask=is_in)
    counter = counters + tl.program_id(0)
    is_last = ends_last(counter)
    other = load_half(halves + (1 - piece) * num_rows * N + at, is_in & is_last)
    tl.store(counter, 0, mask=is_last)
    return is_last, half + other
