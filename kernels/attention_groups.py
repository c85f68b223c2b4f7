"""paged_blocks/1, prompt: append a block of rows, then attend, GROUP_ROWS rows a vector.

The keys are walked in blocks of KEY_BLOCK aligned to position 0, with a running maximum for each
row. A block that a row may not see, or a part of one, multiplies its sums by exactly 1 and adds
exactly 0: which rows share a vector changes nothing. head_dim is at most tables.MAX_HEAD_DIM, query
heads for each K head at most tables.MAX_QUERIES_PER_KV_HEAD.
"""

from typing import Any

import numpy as np
from numba import types

from plancc.kernels.address import by_address, ints, load_f32, load_i64, scratch_f32, store_f32
from plancc.kernels.cache import first_seen, page_after, page_of, row_of, run_at
from plancc.kernels.compile import function, kernel
from plancc.kernels.formats import size_of
from plancc.kernels.functions import exp_f32
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.primitives import narrow, product, round_to, widen
from plancc.kernels.rotary import rotate_group
from plancc.kernels.tables import as_layer, as_step, stage
from plancc.kernels.team import share_of

KEY_BLOCK = 64
_attend_block = by_address(types.void, *ints(11))
_ONE, _ZERO, _NEVER = np.float32(1.0), np.float32(0.0), np.float32(-np.inf)
_LEAST = np.float32(-3.0e38)  # finite: where nothing is seen yet, -inf minus it is still -inf


@stage
def append_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """Rotate each new K row and store it and its V row, rounded to the cache's format."""
    step, layer = as_step(step_at), as_layer(layer_at)
    size, heads = layer.head_dim, layer.num_kv_heads
    row = scratch_f32(256)  # MAX_HEAD_DIM
    first, end = share_of(step.num_groups * heads, part, parts)
    for item in range(first, end):
        group, head = item // heads, item % heads
        key = step.qkv + 64 * (group * layer.qkv_width + (layer.num_heads + head) * size)
        value = key + 64 * heads * size
        rotate_group(step, layer.rope, group, key, layer.rotary_dim)
        for lane in range(min(GROUP_ROWS, step.num_rows - group * GROUP_ROWS)):
            position = load_i64(step.positions, 0) + group * GROUP_ROWS + lane
            place = row_of(step, layer, load_i64(step.slots, 0), position)
            at = (place * heads + head) * size * size_of(step.kv_code)
            for plane, numbers in ((layer.keys, key), (layer.values, value)):
                for i in range(size):
                    store_f32(row, i, load_f32(numbers, i * GROUP_ROWS + lane))
                narrow(step.narrow, row, size, plane + at, step.kv_code)


@stage
def attend_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """attended [groups, num_heads * head_dim, GROUP_ROWS], rounded."""
    step, layer = as_step(step_at), as_layer(layer_at)
    heads = layer.num_kv_heads
    first, end = share_of(step.num_groups * heads, part, parts)
    peaks, weights = scratch_f32(1024), scratch_f32(1024)  # MAX_QUERIES_PER_KV_HEAD x GROUP_ROWS
    for item in range(first, end):
        group, head = item // heads, item % heads
        _begin(step, layer, group, head, peaks, weights)
        _walk(step_at, layer_at, group, head, peaks, weights)
        _end(step, layer, group, head, weights)


@kernel
def _out_of(step: Any, layer: Any, group: Any, head: Any) -> Any:
    """Address of a query head's sums, [head_dim, GROUP_ROWS]."""
    return step.attended + 64 * (group * layer.num_heads + head) * layer.head_dim


@kernel
def _begin(step: Any, layer: Any, group: Any, kv_head: Any, peaks: Any, weights: Any) -> None:
    """Rotate the queries in place; nothing is summed yet."""
    size, shared = layer.head_dim, layer.num_heads // layer.num_kv_heads
    for j in range(shared):
        head = kv_head * shared + j
        query = step.qkv + 64 * (group * layer.qkv_width + head * size)
        rotate_group(step, layer.rope, group, query, layer.rotary_dim)
        out = _out_of(step, layer, group, head)
        for i in range(size * GROUP_ROWS):
            store_f32(out, i, _ZERO)
    for i in range(shared * GROUP_ROWS):
        store_f32(peaks, i, _NEVER)
        store_f32(weights, i, _ZERO)


@kernel
def _walk(step_at: Any, layer_at: Any, group: Any, kv_head: Any, peaks: Any, weights: Any) -> None:
    """Every block of keys that some row of the group sees, for each query head of the K head."""
    step, layer = as_step(step_at), as_layer(layer_at)
    size, shared = layer.head_dim, layer.num_heads // layer.num_kv_heads
    keys, values = scratch_f32(16384), scratch_f32(16384)  # KEY_BLOCK x MAX_HEAD_DIM
    start = load_i64(step.positions, 0) + group * GROUP_ROWS
    until = load_i64(step.positions, 0) + min(step.num_rows, (group + 1) * GROUP_ROWS)
    seen = first_seen(layer, start)
    for block in range(seen // KEY_BLOCK * KEY_BLOCK, until, KEY_BLOCK):
        first, end = max(block, seen), min(block + KEY_BLOCK, until)
        _gather(step, layer, kv_head, first, end, keys, values)
        for j in range(shared):
            head = kv_head * shared + j
            query = step.qkv + 64 * (group * layer.qkv_width + head * size)
            _attend_block(step.attend_block, step_at, layer_at, start, first, end - first, query,
                          keys, values, peaks + 64 * j, weights + 64 * j,
                          _out_of(step, layer, group, head))  # fmt: skip


@kernel
def _gather(step: Any, layer: Any, head: Any, first: Any, end: Any, keys: Any, values: Any) -> None:
    """K and V of positions [first, end) as float32 [positions, head_dim]."""
    size, heads, slot = layer.head_dim, layer.num_kv_heads, load_i64(step.slots, 0)
    done, (page, offset) = 0, page_of(step, layer, first)
    while done < end - first:
        place, count = run_at(step, layer, slot, page, offset, end - first - done)
        for j in range(count):
            at = ((place + j) * heads + head) * size * size_of(step.kv_code)
            out = 4 * (done + j) * size
            widen(step.widen, layer.keys + at, step.kv_code, size, keys + out)
            widen(step.widen, layer.values + at, step.kv_code, size, values + out)
        done, page, offset = done + count, page_after(step, layer, page), 0


@function("void(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def attend_block_function(
    step_at: Any, layer_at: Any, start: Any, first: Any, count: Any, query: Any, keys: Any,
    values: Any, peaks: Any, weights: Any, out: Any,
) -> None:  # fmt: skip
    """Add one block of `count` keys from position `first` on to the sums of a query head."""
    step, layer = as_step(step_at), as_layer(layer_at)
    size = layer.head_dim
    scores, scales = scratch_f32(1024), scratch_f32(16)  # KEY_BLOCK x GROUP_ROWS
    product(step.product, keys, count, size, 1, query, size, scores, GROUP_ROWS, False)
    _mask(layer, start, first, count, scores, peaks, scales)
    for lane in range(GROUP_ROWS):
        store_f32(weights, lane, load_f32(weights, lane) * load_f32(scales, lane))
    for j in range(count):
        for lane in range(GROUP_ROWS):
            peak = max(load_f32(peaks, lane), _LEAST)
            value = exp_f32(load_f32(scores, j * GROUP_ROWS + lane) - peak)
            store_f32(scores, j * GROUP_ROWS + lane, value)
            store_f32(weights, lane, load_f32(weights, lane) + value)
    for i in range(size):
        for lane in range(GROUP_ROWS):
            at = i * GROUP_ROWS + lane
            store_f32(out, at, load_f32(out, at) * load_f32(scales, lane))
    product(step.product, values, size, 1, size, scores, count, out, GROUP_ROWS, True)


@kernel
def _mask(
    layer: Any, start: Any, first: Any, count: Any, scores: Any, peaks: Any, scales: Any
) -> None:
    """Scale the scores, hide what a row may not see, raise the peaks; scales: old over new."""
    scale = _ONE / np.sqrt(np.float32(layer.head_dim))
    for lane in range(GROUP_ROWS):
        position = start + lane
        seen = first_seen(layer, position)
        old = load_f32(peaks, lane)
        peak = old
        for j in range(count):
            at = j * GROUP_ROWS + lane
            is_seen = seen <= first + j <= position
            value = load_f32(scores, at) * scale if is_seen else _NEVER
            store_f32(scores, at, value)
            peak = max(peak, value)
        store_f32(peaks, lane, peak)
        # Before a row's first key both are -inf: exp(-inf) is 0, and so are its sums.
        store_f32(scales, lane, exp_f32(old - max(peak, _LEAST)))


@kernel
def _end(step: Any, layer: Any, group: Any, kv_head: Any, weights: Any) -> None:
    """Divide by the weights; rows beyond the step's last are 0."""
    size, shared = layer.head_dim, layer.num_heads // layer.num_kv_heads
    num_rows = step.num_rows - group * GROUP_ROWS
    for j in range(shared):
        out = _out_of(step, layer, group, kv_head * shared + j)
        for i in range(size):
            for lane in range(GROUP_ROWS):
                at = i * GROUP_ROWS + lane
                weight = load_f32(weights, j * GROUP_ROWS + lane)
                value = load_f32(out, at) / weight if lane < num_rows else _ZERO
                store_f32(out, at, value)
        round_to(step.round_to, out, size * GROUP_ROWS, step.code)
