"""paged_blocks/1, decode: append one row a slot, then attend to all that the slot keeps.

The keys of a row are walked in blocks of KEY_BLOCK aligned to position 0. A block by itself gives a
maximum, a sum of exponentials and a weighted sum of V rows; blocks are merged in order. So neither
pages, nor other rows, nor threads enter into a sum. head_dim is at most tables.MAX_HEAD_DIM.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, load_i64, scratch_f32, store_f32
from plancc.kernels.cache import first_seen, page_after, page_of, row_of, run_at
from plancc.kernels.compile import kernel
from plancc.kernels.formats import size_of
from plancc.kernels.functions import exp_f32
from plancc.kernels.primitives import add_rows, exp_minus, narrow, round_to, row_dots
from plancc.kernels.rotary import rotate_row, table_of_row
from plancc.kernels.tables import as_layer, as_step, stage
from plancc.kernels.team import share_of

KEY_BLOCK = 256
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@stage
def append_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """Rotate each new K row and store it and its V row, rounded to the cache's format."""
    step, layer = as_step(step_at), as_layer(layer_at)
    size, heads = layer.head_dim, layer.num_kv_heads
    first, end = share_of(step.num_rows * heads, part, parts)
    for item in range(first, end):
        row, head = item // heads, item % heads
        key = step.qkv + 4 * (row * layer.qkv_width + (layer.num_heads + head) * size)
        value = key + 4 * heads * size
        rotate_row(key, table_of_row(step, layer.rope, row), step.rope_width, layer.rotary_dim,
                   size, key)  # fmt: skip
        place = row_of(step, layer, load_i64(step.slots, row), load_i64(step.positions, row))
        at = (place * heads + head) * size * size_of(step.kv_code)
        narrow(step.narrow, key, size, layer.keys + at, step.kv_code)
        narrow(step.narrow, value, size, layer.values + at, step.kv_code)


@stage
def attend_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """attended [rows, num_heads * head_dim], rounded to the model's format."""
    step, layer = as_step(step_at), as_layer(layer_at)
    size, heads = layer.head_dim, layer.num_heads
    first, end = share_of(step.num_rows * heads, part, parts)
    query = scratch_f32(256)  # MAX_HEAD_DIM
    for item in range(first, end):
        row, head = item // heads, item % heads
        x = step.qkv + 4 * (row * layer.qkv_width + head * size)
        rotate_row(x, table_of_row(step, layer.rope, row), step.rope_width, layer.rotary_dim,
                   size, query)  # fmt: skip
        out = step.attended + 4 * item * size
        weight = _attend(step, layer, row, head, query, out)
        for i in range(size):
            store_f32(out, i, load_f32(out, i) / weight)
        round_to(step.round_to, out, size, step.code)


@kernel
def _attend(step: Any, layer: Any, row: Any, head: Any, query: Any, out: Any) -> Any:
    """out = sum of exp(score - largest) V; returns the sum of exp(score - largest)."""
    size = layer.head_dim
    scores, sums = scratch_f32(256), scratch_f32(256)  # KEY_BLOCK, MAX_HEAD_DIM
    slot, position = load_i64(step.slots, row), load_i64(step.positions, row)
    seen = first_seen(layer, position)
    largest, weight = _ZERO, _ZERO
    for block in range(seen // KEY_BLOCK * KEY_BLOCK, position + 1, KEY_BLOCK):
        first, end = max(block, seen), min(block + KEY_BLOCK, position + 1)
        peak = _score(step, layer, slot, head, first, end, query, scores)
        mass = exp_minus(step.exp_minus, scores, end - first, peak)
        for i in range(size):
            store_f32(sums, i, _ZERO)
        _mix(step, layer, slot, head, first, end, scores, sums)
        if weight == _ZERO:
            largest, weight = peak, mass
            for i in range(size):
                store_f32(out, i, load_f32(sums, i))
            continue
        top = max(largest, peak)
        old, new = exp_f32(largest - top), exp_f32(peak - top)
        largest, weight = top, weight * old + mass * new
        for i in range(size):
            store_f32(out, i, load_f32(out, i) * old + load_f32(sums, i) * new)
    return weight


@kernel
def _score(
    step: Any, layer: Any, slot: Any, head: Any, first: Any, end: Any, query: Any, scores: Any
) -> Any:
    """scores = q k / sqrt(head_dim) of positions [first, end); returns the largest."""
    size = layer.head_dim
    stride = layer.num_kv_heads * size * size_of(step.kv_code)
    keys = layer.keys + _kv_head(layer, head) * size * size_of(step.kv_code)
    done, (page, offset) = 0, page_of(step, layer, first)
    while done < end - first:
        place, count = run_at(step, layer, slot, page, offset, end - first - done)
        row_dots(step.row_dots, keys + place * stride, stride, count, query, size, step.kv_code,
                 scores + 4 * done)  # fmt: skip
        done, page, offset = done + count, page_after(step, layer, page), 0
    scale, peak = _ONE / np.sqrt(np.float32(size)), np.float32(-np.inf)
    for j in range(end - first):
        value = load_f32(scores, j) * scale
        store_f32(scores, j, value)
        peak = max(peak, value)
    return peak


@kernel
def _kv_head(layer: Any, head: Any) -> Any:
    """The K head that a query head reads."""
    return head // (layer.num_heads // layer.num_kv_heads)


@kernel
def _mix(
    step: Any, layer: Any, slot: Any, head: Any, first: Any, end: Any, factors: Any, sums: Any
) -> None:
    """sums += factor x V row over positions [first, end), in order."""
    size = layer.head_dim
    stride = layer.num_kv_heads * size
    done, (page, offset) = 0, page_of(step, layer, first)
    while done < end - first:
        place, count = run_at(step, layer, slot, page, offset, end - first - done)
        at = (place * stride + _kv_head(layer, head) * size) * size_of(step.kv_code)
        add_rows(step.add_rows, layer.values + at, stride, step.kv_code, factors + 4 * done, count,
                 sums, size)  # fmt: skip
        done, page, offset = done + count, page_after(step, layer, page), 0
