"""tile_tree/1: gate, up and SiLU in one kernel; down as a sum over tiles, added in a fixed tree.

A tile's partial is the float32 sum over its columns alone, so a rank that holds a run of tiles
computes the same partials as one that holds all. They are added on a stack: a tile's partial is
pushed, then as many pairs of the two topmost are added as subtrees end with that tile. What is
left at the end are the roots of the maximal subtrees of the run, in tile order: one for all tiles.
Any shape of 1 or more, and up to ir.tiles.MAX_TILES tiles.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, load_i64, scratch_f32, store_f32
from plancc.kernels.compile import kernel
from plancc.kernels.formats import load_as, size_of
from plancc.kernels.functions import silu
from plancc.kernels.linear import block_sums, write_column
from plancc.kernels.panels import GROUP_ROWS, PANEL_ROWS
from plancc.kernels.primitives import dot, round_to, tile_dots
from plancc.kernels.tables import BLOCK_ROWS, as_layer, as_step, stage
from plancc.kernels.team import share_of

_ZERO = np.float32(0.0)
_COLUMNS = 8  # output columns that are computed together
_PANEL_SIZE = PANEL_ROWS * BLOCK_ROWS


@stage
def gate_up_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """activated [rows, inner] = silu(x gate) * (x up), rounded."""
    step, layer = as_step(step_at), as_layer(layer_at)
    width, inner = step.hidden_size, layer.inner
    first, end = share_of(inner, part, parts)
    stride = width * size_of(step.code)
    gates, ups = scratch_f32(8), scratch_f32(8)  # _COLUMNS
    for column in range(first, end, _COLUMNS):
        count = min(_COLUMNS, end - column)
        gate = layer.gate_up + column * stride
        for row in range(step.num_rows):
            x = step.normed + 4 * row * width
            for j in range(count):  # in turns: two streams of reads are faster than one
                at = gate + j * stride
                store_f32(gates, j, dot(step.dot, at, x, width, step.code))
                store_f32(ups, j, dot(step.dot, at + inner * stride, x, width, step.code))
            if layer.gate_up_bias != 0:
                for j in range(count):
                    _add_bias(step, layer, gates, ups, j, column + j)
            for j in range(count):
                value = silu(load_f32(gates, j)) * load_f32(ups, j)
                store_f32(step.activated, row * inner + column + j, value)
    for row in range(step.num_rows):
        place = step.activated + 4 * (row * inner + first)
        round_to(step.round_to, place, end - first, step.code)


@kernel
def _add_bias(step: Any, layer: Any, gates: Any, ups: Any, at: Any, column: Any) -> None:
    """To a number of gate and of up, each its own bias."""
    gate = load_as(layer.gate_up_bias, column, step.code)
    up = load_as(layer.gate_up_bias, layer.inner + column, step.code)
    store_f32(gates, at, load_f32(gates, at) + gate)
    store_f32(ups, at, load_f32(ups, at) + up)


@stage
def down_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """The sum over the rank's tiles and the bias, added to the residual [rows, hidden] and rounded
    once.

    Where the step has `partials` the roots go there instead, and nothing is added.
    """
    step, layer = as_step(step_at), as_layer(layer_at)
    height = step.hidden_size
    first, end = share_of((height + _COLUMNS - 1) // _COLUMNS, part, parts)
    leaves, stack = scratch_f32(512), scratch_f32(128)  # 64 tiles, 16 levels, times _COLUMNS
    for block in range(first, end):
        column = block * _COLUMNS
        count = min(_COLUMNS, height - column)
        for row in range(step.num_rows):
            _tile_dots(step, layer, row, column, count, leaves)
            roots = 0
            for tile in range(layer.num_tiles):
                for j in range(_COLUMNS):
                    store_f32(stack, roots * _COLUMNS + j, load_f32(leaves, tile * _COLUMNS + j))
                roots = merge(stack, _COLUMNS, roots + 1, load_i64(layer.tile_merges, tile))
            if step.partials == 0:
                add_to_row(step, layer.down_bias, row, column, count, stack)
                continue
            for root in range(roots):
                out = step.partials + 4 * ((row * roots + root) * height + column)
                for j in range(count):
                    store_f32(out, j, load_f32(stack, root * _COLUMNS + j))


@kernel
def _tile_dots(step: Any, layer: Any, row: Any, column: Any, count: Any, leaves: Any) -> None:
    """leaves [tiles, _COLUMNS]: each tile's partial of `count` columns."""
    x = step.activated + 4 * row * layer.inner
    for j in range(count):
        weights = layer.down + (column + j) * layer.inner * size_of(step.code)
        tile_dots(step.tile_dots, weights, x, layer.tile_bounds, layer.num_tiles, step.code,
                  leaves + 4 * j, _COLUMNS)  # fmt: skip


@kernel
def merge(stack: Any, width: Any, depth: Any, times: Any) -> Any:
    """Add the topmost of `depth` rows to the one below it, `times` times; the new depth."""
    for _ in range(times):
        depth -= 1
        top = stack + 4 * depth * width
        below = top - 4 * width
        for j in range(width):
            store_f32(below, j, load_f32(below, j) + load_f32(top, j))
    return depth


@kernel
def add_to_row(step: Any, bias: Any, row: Any, column: Any, count: Any, sums: Any) -> None:
    """residual + (sum + bias), `count` columns of a row, rounded once."""
    at = row * step.hidden_size + column
    for j in range(count):
        value = load_f32(sums, j)
        if bias != 0:
            value += load_as(bias, column + j, step.code)
        before = load_f32(step.residual, at + j)
        store_f32(step.residual, at + j, before + value)
    round_to(step.round_to, step.residual + 4 * at, count, step.code)


@stage
def gate_up_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """activated [groups, inner, GROUP_ROWS], as gate_up_rows."""
    step, layer = as_step(step_at), as_layer(layer_at)
    width, inner = step.hidden_size, layer.inner
    first, end = share_of((inner + PANEL_ROWS - 1) // PANEL_ROWS, part, parts)
    gates, ups = scratch_f32(384), scratch_f32(384)  # _PANEL_SIZE
    for panel in range(first, end):
        column = panel * PANEL_ROWS
        count = min(PANEL_ROWS, inner - column)
        for half in range(2):
            block_sums(step.block_sums, step_at, layer.gate_up, width, half * inner + column, count,
                       0, width, step.normed, ups if half else gates)  # fmt: skip
        for row in range(count):
            if layer.gate_up_bias != 0:
                for lane in range(step.num_groups * GROUP_ROWS):
                    _add_bias(step, layer, gates, ups, row * BLOCK_ROWS + lane, column + row)
            for group in range(step.num_groups):
                out = step.activated + 64 * (group * inner + column + row)
                at = row * BLOCK_ROWS + group * GROUP_ROWS
                for lane in range(GROUP_ROWS):
                    value = silu(load_f32(gates, at + lane)) * load_f32(ups, at + lane)
                    store_f32(out, lane, value)
                round_to(step.round_to, out, GROUP_ROWS, step.code)


@stage
def down_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """As down_rows, for a residual of groups [groups, hidden, GROUP_ROWS]; the roots are rows."""
    step, layer = as_step(step_at), as_layer(layer_at)
    height = step.hidden_size
    first, end = share_of((height + PANEL_ROWS - 1) // PANEL_ROWS, part, parts)
    stack = scratch_f32(6144)  # 16 levels x _PANEL_SIZE
    for panel in range(first, end):
        column = panel * PANEL_ROWS
        count = min(PANEL_ROWS, height - column)
        roots = 0
        for tile in range(layer.num_tiles):
            k, end_k = load_i64(layer.tile_bounds, tile), load_i64(layer.tile_bounds, tile + 1)
            block_sums(step.block_sums, step_at, layer.down, layer.inner, column, count, k, end_k,
                       step.activated, stack + 4 * roots * _PANEL_SIZE)  # fmt: skip
            roots = merge(stack, _PANEL_SIZE, roots + 1, load_i64(layer.tile_merges, tile))
        if step.partials != 0:
            _write_roots(step, stack, roots, column, count)
            continue
        for row in range(count):
            shift = _ZERO
            if layer.down_bias != 0:
                shift = load_as(layer.down_bias, column + row, step.code)
            sums = stack + 4 * row * BLOCK_ROWS
            write_column(step, sums, shift, step.residual, height, column + row, True)


@kernel
def _write_roots(step: Any, stack: Any, roots: Any, column: Any, count: Any) -> None:
    """`count` columns of every root [PANEL_ROWS, BLOCK_ROWS] into the partial rows."""
    for row in range(step.num_rows):
        for root in range(roots):
            out = step.partials + 4 * ((row * roots + root) * step.hidden_size + column)
            for j in range(count):
                store_f32(out, j, load_f32(stack, root * _PANEL_SIZE + j * BLOCK_ROWS + row))
