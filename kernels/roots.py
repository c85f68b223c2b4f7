"""The rest of the tile tree: the roots of all ranks, added in the order of the tree of one device.

A rank that has the partial rows of its whole group computes the very sum that `mlp` computes where
one device holds all tiles, so every rank of the group has the same bits. Any width of 1 or more.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, load_i64, scratch_f32, store_f32
from plancc.kernels.compile import kernel
from plancc.kernels.formats import load_as
from plancc.kernels.mlp import add_to_row, merge
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.primitives import round_to
from plancc.kernels.tables import as_step, stage
from plancc.kernels.team import share_of

_COLUMNS = 64
_ZERO = np.float32(0.0)


@kernel
def _sum(step: Any, row: Any, column: Any, count: Any, stack: Any) -> None:
    """stack [_COLUMNS] = the sum of `count` columns of a row."""
    depth = 0
    for root in range(step.num_roots):
        x = load_i64(step.roots, 2 * root) + row * load_i64(step.roots, 2 * root + 1) + 4 * column
        for j in range(count):
            store_f32(stack, depth * _COLUMNS + j, load_f32(x, j))
        depth = merge(stack, _COLUMNS, depth + 1, load_i64(step.root_merges, root))


@stage
def sum_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """The sum of all roots and the bias, added to the residual [rows, hidden], rounded once."""
    step = as_step(step_at)
    first, end = share_of((step.hidden_size + _COLUMNS - 1) // _COLUMNS, part, parts)
    stack = scratch_f32(1024)  # 16 levels x _COLUMNS
    for block in range(first, end):
        column = block * _COLUMNS
        count = min(_COLUMNS, step.hidden_size - column)
        for row in range(step.num_rows):
            _sum(step, row, column, count, stack)
            add_to_row(step, step.sum_bias, row, column, count, stack)


@stage
def sum_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """As sum_rows, for a residual of groups [groups, hidden, GROUP_ROWS]."""
    step = as_step(step_at)
    first, end = share_of((step.hidden_size + _COLUMNS - 1) // _COLUMNS, part, parts)
    stack = scratch_f32(1024)  # 16 levels x _COLUMNS
    for block in range(first, end):
        column = block * _COLUMNS
        count = min(_COLUMNS, step.hidden_size - column)
        for group in range(step.num_groups):
            place = step.residual + 64 * (group * step.hidden_size + column)
            for lane in range(min(GROUP_ROWS, step.num_rows - group * GROUP_ROWS)):
                _sum(step, group * GROUP_ROWS + lane, column, count, stack)
                _add_to_lane(step, column, count, stack, place + 4 * lane)
            round_to(step.round_to, place, count * GROUP_ROWS, step.code)


@kernel
def _add_to_lane(step: Any, column: Any, count: Any, sums: Any, out: Any) -> None:
    for j in range(count):
        shift = _ZERO
        if step.sum_bias != 0:
            shift = load_as(step.sum_bias, column + j, step.code)
        before = load_f32(out, j * GROUP_ROWS)
        store_f32(out, j * GROUP_ROWS, before + (load_f32(sums, j) + shift))
