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

KEY_BLOCK = 64  # K and V of one head and block stay in the near cache for all its queries
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)
_LEAST = np.float32(-3.0e38)


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
    shared = heads // layer.num_kv_heads
    # Queries of one K head together read it once; but every thread should have some.
    together = shared if parts <= step.num_rows * layer.num_kv_heads else 1
    first, end = share_of(step.num_rows * heads // together, part, parts)
    for item in range(first, end):
        row, head = item * together // heads, item * together % heads
        queries = step.qkv + 4 * (row * layer.qkv_width + head * size)
        out = step.attended + 4 * item * together * size
        table = table_of_row(step, layer.rope, row)
        for j in range(together):
            query = queries + 4 * j * size
            rotate_row(query, table, step.rope_width, layer.rotary_dim, size, query)
        _attend(step, layer, row, head // shared, together, queries, out)
        round_to(step.round_to, out, together * size, step.code)


@kernel
def _attend(
    step: Any, layer: Any, row: Any, kv_head: Any, num_queries: Any, queries: Any, out: Any
) -> None:
    """out [queries, head_dim]: a block of keys at a time, for each of the queries."""
    size = layer.head_dim
    peaks, weights = scratch_f32(64), scratch_f32(64)  # MAX_QUERIES_PER_KV_HEAD
    for j in range(num_queries):
        store_f32(peaks, j, _LEAST)
        store_f32(weights, j, _ZERO)
    for i in range(num_queries * size):
        store_f32(out, i, _ZERO)
    slot, position = load_i64(step.slots, row), load_i64(step.positions, row)
    seen = first_seen(layer, position)
    for block in range(seen // KEY_BLOCK * KEY_BLOCK, position + 1, KEY_BLOCK):
        first, end = max(block, seen), min(block + KEY_BLOCK, position + 1)
        for j in range(num_queries):
            _add_block(step, layer, slot, kv_head, first, end, queries + 4 * j * size,
                       peaks + 4 * j, weights + 4 * j, out + 4 * j * size)  # fmt: skip
    for j in range(num_queries):
        weight = load_f32(weights, j)
        for i in range(size):
            store_f32(out, j * size + i, load_f32(out, j * size + i) / weight)


@kernel
def _add_block(
    step: Any, layer: Any, slot: Any, kv_head: Any, first: Any, end: Any, query: Any, peak_at: Any,
    weight_at: Any, out: Any,
) -> None:  # fmt: skip
    """Merge the keys [first, end) into a head's peak, weight and sums."""
    size = layer.head_dim
    scores, sums = scratch_f32(64), scratch_f32(256)  # KEY_BLOCK, MAX_HEAD_DIM
    peak = _score(step, layer, slot, kv_head, first, end, query, scores)
    mass = exp_minus(step.exp_minus, scores, end - first, peak)
    for i in range(size):
        store_f32(sums, i, _ZERO)
    _mix(step, layer, slot, kv_head, first, end, scores, sums)
    largest = load_f32(peak_at, 0)
    top = max(largest, peak)
    old, new = exp_f32(largest - top), exp_f32(peak - top)
    store_f32(peak_at, 0, top)
    store_f32(weight_at, 0, load_f32(weight_at, 0) * old + mass * new)
    for i in range(size):
        store_f32(out, i, load_f32(out, i) * old + load_f32(sums, i) * new)


@kernel
def _score(
    step: Any, layer: Any, slot: Any, kv_head: Any, first: Any, end: Any, query: Any, scores: Any
) -> Any:
    """scores = q k / sqrt(head_dim) of positions [first, end); returns the largest."""
    size = layer.head_dim
    stride = layer.num_kv_heads * size * size_of(step.kv_code)
    keys = layer.keys + kv_head * size * size_of(step.kv_code)
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
def _mix(
    step: Any, layer: Any, slot: Any, kv_head: Any, first: Any, end: Any, factors: Any, sums: Any
) -> None:
    """sums += factor x V row over positions [first, end), in order."""
    size = layer.head_dim
    stride = layer.num_kv_heads * size
    done, (page, offset) = 0, page_of(step, layer, first)
    while done < end - first:
        place, count = run_at(step, layer, slot, page, offset, end - first - done)
        at = (place * stride + kv_head * size) * size_of(step.kv_code)
        add_rows(step.add_rows, layer.values + at, stride, step.kv_code, factors + 4 * done, count,
                 sums, size)  # fmt: skip
        done, page, offset = done + count, page_after(step, layer, page), 0
