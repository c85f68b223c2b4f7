"""row_dot/1: matrix products whose every output is one sum, in an order that K alone decides.

Decode: `dot` of a matrix row and a hidden row; rows of a batch one by one. Prompt: blocks of
BLOCK_K columns, each one chain of fused multiply-adds, added in turn. Neither the number of rows,
nor threads, nor where a row stands in its step enters into a sum. Any shape of 1 or more is taken.
"""

from typing import Any

import numpy as np
from numba import types

from plancc.kernels.address import by_address, ints, load_f32, scratch_f32, store_f32
from plancc.kernels.compile import function, kernel
from plancc.kernels.formats import FLOAT32, load_as, size_of
from plancc.kernels.panels import GROUP_ROWS, PANEL_ROWS
from plancc.kernels.primitives import product, round_to, row_dots, widen
from plancc.kernels.tables import BLOCK_ROWS, as_layer, as_step, stage
from plancc.kernels.team import share_of

QKV, OUTPUT, HEAD = 0, 1, 2
BLOCK_K = 256
_COLUMNS = 16  # matrix rows that stay in the near cache for all rows of a batch
_ZERO = np.float32(0.0)


@kernel
def _task(step: Any, layer: Any, variant: Any) -> Any:
    """(matrix, bias, x, width, out, height) of a variant."""
    if variant == QKV:
        return (layer.qkv, layer.qkv_bias, step.normed, step.hidden_size, step.qkv,
                layer.qkv_width)  # fmt: skip
    if variant == OUTPUT:
        return (layer.output, layer.output_bias, step.attended, layer.num_heads * layer.head_dim,
                step.residual, step.hidden_size)  # fmt: skip
    return step.head, 0, step.normed, step.hidden_size, step.logits, step.vocab_size


@stage
def linear_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """QKV: normed into qkv, rounded. OUTPUT: attended, added to the residual, rounded once.
    HEAD: the first num_logits rows of normed into logits."""
    step, layer = as_step(step_at), as_layer(layer_at)
    matrix, bias, x, width, out, height = _task(step, layer, variant)
    num_rows = step.num_logits if variant == HEAD else step.num_rows
    first, end = share_of(height, part, parts)
    stride = width * size_of(step.code)
    sums = scratch_f32(16)  # _COLUMNS
    for column in range(first, end, _COLUMNS):
        count = min(_COLUMNS, end - column)
        for row in range(num_rows):
            row_dots(step.row_dots, matrix + column * stride, stride, count, x + 4 * row * width,
                     width, step.code, sums)  # fmt: skip
            for j in range(count):
                at = row * height + column + j
                shift = load_as(bias, column + j, step.code) if bias != 0 else _ZERO
                before = load_f32(out, at) if variant == OUTPUT else _ZERO
                store_f32(out, at, before + (load_f32(sums, j) + shift))
    if variant != HEAD and step.code != FLOAT32:
        for row in range(num_rows):
            round_to(step.round_to, out + 4 * (row * height + first), end - first, step.code)


@function("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def block_sums_function(
    step_at: Any, matrix: Any, width: Any, first_row: Any, num_rows: Any, first_k: Any, end_k: Any,
    x: Any, sums: Any,
) -> None:  # fmt: skip
    """sums [num_rows, BLOCK_ROWS] = PANEL_ROWS or fewer matrix rows times columns [first, end)
    of x [groups, width, GROUP_ROWS]."""
    step = as_step(step_at)
    wide = scratch_f32(1536)  # PANEL_ROWS x BLOCK_K
    size = size_of(step.code)
    for k in range(first_k, end_k, BLOCK_K):
        count = min(BLOCK_K, end_k - k)
        panel, stride = matrix + (first_row * width + k) * size, width
        if step.code != FLOAT32:
            for row in range(num_rows):
                widen(step.widen, panel + row * width * size, step.code, count,
                      wide + 4 * row * BLOCK_K)  # fmt: skip
            panel, stride = wide, BLOCK_K
        for group in range(step.num_groups):
            product(step.product, panel, num_rows, stride, 1, x + 64 * (group * width + k), count,
                    sums + 64 * group, BLOCK_ROWS, k > first_k)  # fmt: skip


block_sums = by_address(types.void, *ints(9))


@stage
def linear_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """QKV and OUTPUT as linear_rows, over groups [groups, height, GROUP_ROWS]."""
    step, layer = as_step(step_at), as_layer(layer_at)
    matrix, bias, x, width, out, height = _task(step, layer, variant)
    first, end = share_of((height + PANEL_ROWS - 1) // PANEL_ROWS, part, parts)
    sums = scratch_f32(384)  # PANEL_ROWS x BLOCK_ROWS
    for panel in range(first, end):
        column = panel * PANEL_ROWS
        count = min(PANEL_ROWS, height - column)
        block_sums(step.block_sums, step_at, matrix, width, column, count, 0, width, x, sums)
        for row in range(count):
            shift = load_as(bias, column + row, step.code) if bias != 0 else _ZERO
            write_column(step, sums + 4 * row * BLOCK_ROWS, shift, out, height, column + row,
                         variant == OUTPUT)  # fmt: skip


@kernel
def write_column(
    step: Any, sums: Any, shift: Any, out: Any, height: Any, column: Any, is_added: Any
) -> None:
    """One column of every group: sums [BLOCK_ROWS] + shift, or that added to what is there."""
    for group in range(step.num_groups):
        place = out + 64 * (group * height + column)
        for lane in range(GROUP_ROWS):
            value = load_f32(sums, group * GROUP_ROWS + lane) + shift
            before = load_f32(place, lane) if is_added else _ZERO
            store_f32(place, lane, before + value)
        round_to(step.round_to, place, GROUP_ROWS, step.code)
