"""gather/1: rows of the embedding, or of the hidden rows that came, as float32; and back.

Widening is exact, and what leaves was already rounded to the model's format: nothing is rounded.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, load_i64, scratch_f32, store_f32
from plancc.kernels.compile import kernel
from plancc.kernels.formats import size_of
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.primitives import narrow, widen
from plancc.kernels.rotary import fill_groups, fill_rows
from plancc.kernels.tables import as_step, stage
from plancc.kernels.team import share_of

RESIDUAL, NORMED = 0, 1
_ZERO = np.float32(0.0)
_PIECE = 256


@kernel
def _source(step: Any, row: Any) -> Any:
    """Address of a row: its token's in the embedding, or the one that came."""
    size = step.hidden_size * size_of(step.code)
    if step.embedding != 0:
        return step.embedding + load_i64(step.token_ids, row) * size
    return step.hidden_in + row * size


@stage
def enter_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """Rows into the residual, float32 [rows, hidden], and their cosines and sines; or NORMED."""
    step = as_step(step_at)
    first, end = share_of(step.num_rows, part, parts)
    base = step.normed if variant == NORMED else step.residual
    for row in range(first, end):
        out = base + 4 * row * step.hidden_size
        widen(step.widen, _source(step, row), step.code, step.hidden_size, out)
    if variant == RESIDUAL:
        fill_rows(step, first, end)


@stage
def leave_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """The residual's rows into hidden_out, or the normed ones into normed_out."""
    step = as_step(step_at)
    first, end = share_of(step.num_rows * step.hidden_size, part, parts)
    base = step.normed if variant == NORMED else step.residual
    out = step.normed_out if variant == NORMED else step.hidden_out
    narrow(step.narrow, base + 4 * first, end - first, out + first * size_of(step.code),
           step.code)  # fmt: skip


@kernel
def _place(step: Any, base: Any, row: Any) -> Any:
    """Address of a row's first number in groups of hidden_size."""
    group = row // GROUP_ROWS
    return base + 64 * group * step.hidden_size + 4 * (row - group * GROUP_ROWS)


@stage
def enter_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """As enter_rows, [groups, hidden, GROUP_ROWS], 0 beyond the last row."""
    step = as_step(step_at)
    first, end = share_of(step.num_groups, part, parts)
    base = step.normed if variant == NORMED else step.residual
    if variant == RESIDUAL:
        fill_groups(step, first, end)
    piece = scratch_f32(256)  # _PIECE
    for row in range(first * GROUP_ROWS, end * GROUP_ROWS):
        out = _place(step, base, row)
        for i in range(0, step.hidden_size, _PIECE):
            count = min(_PIECE, step.hidden_size - i)
            if row < step.num_rows:
                numbers = _source(step, row) + i * size_of(step.code)
                widen(step.widen, numbers, step.code, count, piece)
            for j in range(count):
                value = load_f32(piece, j) if row < step.num_rows else _ZERO
                store_f32(out, (i + j) * GROUP_ROWS, value)


@stage
def leave_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """As leave_rows, from groups."""
    step = as_step(step_at)
    first, end = share_of(step.num_rows, part, parts)
    base = step.normed if variant == NORMED else step.residual
    rows_out = step.normed_out if variant == NORMED else step.hidden_out
    piece = scratch_f32(256)  # _PIECE
    for row in range(first, end):
        x = _place(step, base, row)
        for i in range(0, step.hidden_size, _PIECE):
            count = min(_PIECE, step.hidden_size - i)
            for j in range(count):
                store_f32(piece, j, load_f32(x, (i + j) * GROUP_ROWS))
            out = rows_out + (row * step.hidden_size + i) * size_of(step.code)
            narrow(step.narrow, piece, count, out, step.code)


@kernel
def take_last_row(step: Any, out: Any) -> None:
    """The last row of the residual's groups, float32 [hidden]."""
    x = _place(step, step.residual, step.num_rows - 1)
    for i in range(step.hidden_size):
        store_f32(out, i, load_f32(x, i * GROUP_ROWS))
