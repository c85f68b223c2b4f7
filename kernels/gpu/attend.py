"""Pieces of decode attention: where keys lie, a split of them, a row's own key."""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel
from plancc.kernels.gpu.launch import product
from plancc.kernels.gpu.rotary import load_rotated

LEAST = tl.constexpr(-3.0e38)  # of a key that is not seen: what it lacks to infinity avoids NaN


@kernel
def key_rows(
    pages: tensor, at: tensor, is_there: tensor, capacity: tensor,
    PAGE: tl.constexpr, RING: tl.constexpr,
) -> Any:  # fmt: skip
    """Rows of a plane where positions `at` lie; pages: those of the slot."""
    place = at % capacity if RING else at
    page = tl.load(pages + place // PAGE, mask=is_there, other=0)
    return page.to(tl.int64) * PAGE + place % PAGE


@kernel
def load_keys(
    keys: tensor, values: tensor, pages: tensor, at: tensor, is_seen: tensor, capacity: tensor,
    columns: tensor,
    HEAD_DIM: tl.constexpr, STRIDE: tl.constexpr, PAGE: tl.constexpr, RING: tl.constexpr,
) -> Any:  # fmt: skip
    """K and V [SPLIT, D] of positions `at`, zero where nothing is seen."""
    rows = key_rows(pages, at, is_seen, capacity, PAGE, RING) * STRIDE
    is_in = is_seen[:, None] & (columns[None, :] < HEAD_DIM)
    k = tl.load(keys + rows[:, None] + columns[None, :], mask=is_in, other=0.0)
    v = tl.load(values + rows[:, None] + columns[None, :], mask=is_in, other=0.0)
    return k, v


@kernel
def attend_split(q: tensor, k: tensor, v: tensor, is_seen: tensor, scale: tensor) -> Any:
    """(peak, mass, acc [heads, D]) of q [heads, D] over keys k [SPLIT, D] with values v."""
    k, v = k.to(q.dtype), v.to(q.dtype)
    scores = product(q, tl.trans(k), tl.zeros([q.shape[0], k.shape[0]], tl.float32)) * scale
    scores = tl.where(is_seen[None, :], scores, LEAST)
    peak = tl.max(scores, 1)
    weights = tl.where(is_seen[None, :], tl.exp2(scores - peak[:, None]), 0.0)
    acc = product(weights.to(v.dtype), v, tl.zeros([q.shape[0], v.shape[1]], tl.float32))
    return peak, tl.sum(weights, 1), acc


@kernel
def add_own(
    q: tensor, k: tensor, v: tensor, scale: tensor, peak: tensor, mass: tensor, acc: tensor,
) -> Any:  # fmt: skip
    """One more key k [1, D] with its value v [1, D]."""
    score = tl.sum(q.to(tl.float32) * k.to(tl.float32), 1) * scale
    top = tl.maximum(peak, score)
    old, weight = tl.exp2(peak - top), tl.exp2(score - top)
    return top, mass * old + weight, acc * old[:, None] + weight[:, None] * v.to(tl.float32)


@kernel
def append(
    qkv: tensor, table: tensor, keys: tensor, values: tensor, place: tensor, writes: tensor,
    columns: tensor,
    QUERIES: tl.constexpr, KV_WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr,
) -> Any:  # fmt: skip
    """The row's own K (rotated) and V of a head, rounded to the cache's format, and stored."""
    is_in = columns < HEAD_DIM
    k = load_rotated(qkv + QUERIES, table, columns, is_in, HEAD_DIM, ROTARY, HALF)
    v = tl.load(qkv + QUERIES + KV_WIDTH + columns, mask=is_in, other=0.0)
    k, v = k.to(keys.dtype.element_ty), v.to(values.dtype.element_ty)
    tl.store(keys + place + columns, k, mask=is_in & writes)
    tl.store(values + place + columns, v, mask=is_in & writes)
    return k, v
