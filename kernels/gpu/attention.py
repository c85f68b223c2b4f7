"""paged_blocks/1 in decode: rotate, append K and V, attend to all that the slot keeps.

The keys of a row are cut at every SPLIT tokens from position 0 on, whatever the length. A program
has one K head and one split, and walks it in blocks of BLOCK keys with a running maximum; while it
works on a block the next is on its way. The row's own key is added last. Splits are merged in order
by whoever ends last. Neither pages, nor other rows, nor the number of programs enter into a sum.
Where keys lie, and all of them but the row's own, is known before the kernel that makes q has
ended, so reading begins before that (launch.py).
Refused: head_dim over 256, more than 64 query heads for a K head.
"""

import math
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.attend import LEAST, add_block, add_own, append, key_rows, load_keys
from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous
from plancc.kernels.gpu.merge import merge
from plancc.kernels.gpu.rotary import load_rotated
from plancc.kernels.gpu.tilings import power_of_two

SPLIT = 512


@kernel
def _split(
    source: tensor, table: tensor, own: tensor, keys: tensor, values: tensor, position: tensor,
    split: tensor, last: tensor, seen: tensor, capacity: tensor, scale: tensor, heads: tensor,
    columns: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
    RING: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    """(peak, mass, acc) of this program's split; appends if it is the last."""
    head = tl.program_id(0)
    SHARED: tl.constexpr = NUM_HEADS // KV_HEADS
    STRIDE: tl.constexpr = KV_HEADS * HEAD_DIM
    keys, values = keys + head * HEAD_DIM, values + head * HEAD_DIM
    first = tl.maximum(split * SPLIT, seen // BLOCK * BLOCK)
    end = tl.minimum((split + 1) * SPLIT, position)
    at = first + tl.arange(0, BLOCK)
    is_seen = (at < end) & (at >= seen)
    rows = key_rows(own, at, is_seen, capacity, PAGE, RING) * STRIDE
    k, v = load_keys(keys, values, rows, is_seen, columns, HEAD_DIM)
    rows = key_rows(own, at + BLOCK, at + BLOCK < end, capacity, PAGE, RING) * STRIDE
    wait_for_previous(OVERLAP)  # only q, and the row's own k and v, are of this step
    has_query = (heads[:, None] < SHARED) & (columns[None, :] < HEAD_DIM)
    q = load_rotated(source + (heads[:, None] + head * SHARED) * HEAD_DIM, table,
                     columns[None, :], has_query, HEAD_DIM, ROTARY, HALF)  # fmt: skip
    q = q.to(source.dtype.element_ty)
    place = key_rows(own, position + tl.zeros([1], tl.int32), tl.full([1], 1, tl.int1), capacity,
                     PAGE, RING) * STRIDE  # fmt: skip
    mine, value = append(source + head * HEAD_DIM, table, keys, values, place, split == last,
                         columns, NUM_HEADS * HEAD_DIM, STRIDE, HEAD_DIM, ROTARY,
                         HALF)  # fmt: skip
    peak, mass = tl.full([HEADS], LEAST, tl.float32), tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, WIDTH], tl.float32)
    for _ in range(first, end, BLOCK):
        at += BLOCK
        is_next = at < end
        next_k, next_v = load_keys(keys, values, rows, is_next, columns, HEAD_DIM)
        rows = key_rows(own, at + BLOCK, at + BLOCK < end, capacity, PAGE, RING) * STRIDE
        peak, mass, acc = add_block(q, k.to(q.dtype), v.to(q.dtype), is_seen, scale, peak, mass,
                                    acc)  # fmt: skip
        k, v, is_seen = next_k, next_v, is_next
    if split == last:
        peak, mass, acc = add_own(q, mine[None, :], value[None, :], scale, peak, mass, acc)
    return peak, mass, acc


@entry(["pages_per_slot", "capacity", "window", "max_splits"])
def _attention(
    qkv: tensor, angles: tensor, positions: tensor, slots: tensor, pages: tensor, keys: tensor,
    values: tensor, out: tensor, sums: tensor, peaks: tensor, counters: tensor,
    pages_per_slot: tensor, capacity: tensor, window: tensor, scale: tensor, max_splits: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
    RING: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, PADDED_SHARED: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    let_next_start(OVERLAP)
    SHARED: tl.constexpr = NUM_HEADS // KV_HEADS
    head, row = tl.program_id(0), tl.program_id(1)
    position, slot = tl.load(positions + row), tl.load(slots + row)
    seen = tl.maximum(position - window + 1, 0) if RING else position * 0
    split, last = seen // SPLIT + tl.program_id(2), position // SPLIT
    if (position < 0) | (split > last):
        return
    columns, heads = tl.arange(0, WIDTH), tl.arange(0, HEADS)
    peak, mass, acc = _split(
        qkv + row * (NUM_HEADS + 2 * KV_HEADS) * HEAD_DIM, angles + row * 2 * HALF,
        pages + slot * pages_per_slot, keys, values, position, split, last, seen, capacity, scale,
        heads, columns, NUM_HEADS, KV_HEADS, HEAD_DIM, ROTARY, HALF, HEADS, WIDTH, PAGE,
        RING, SPLIT, BLOCK, OVERLAP,
    )  # fmt: skip
    num = last - seen // SPLIT + 1
    places = heads[:, None] * HEAD_DIM + columns[None, :]
    is_in = (heads[:, None] < SHARED) & (columns[None, :] < HEAD_DIM)
    if num > 1:
        item = row * KV_HEADS + head
        first = item * max_splits
        mine = first + tl.program_id(2)
        tl.store(sums + mine * SHARED * HEAD_DIM + places, acc, mask=is_in)
        tl.store(peaks + mine * 2 * SHARED + heads, peak, mask=heads < SHARED)
        tl.store(peaks + (mine * 2 + 1) * SHARED + heads, mass, mask=heads < SHARED)
        tl.debug_barrier()
        if tl.atomic_add(counters + item, 1, sem="acq_rel") == num - 1:
            tl.store(counters + item, 0)
            merged = merge(sums + first * SHARED * HEAD_DIM, peaks + first * 2 * SHARED, num,
                           SHARED, HEAD_DIM, PADDED_SHARED, WIDTH)  # fmt: skip
            h = tl.arange(0, PADDED_SHARED)
            at = out + (row * NUM_HEADS + head * SHARED + h[:, None]) * HEAD_DIM + columns[None, :]
            is_real = (h[:, None] < SHARED) & (columns[None, :] < HEAD_DIM)
            tl.store(at, merged.to(out.dtype.element_ty), mask=is_real)
    else:
        at = out + (row * NUM_HEADS + head * SHARED) * HEAD_DIM + places
        tl.store(at, (acc / mass[:, None]).to(out.dtype.element_ty), mask=is_in)


def num_splits(context: int) -> int:
    """Programs a K head needs for `context` tokens."""
    return -(-context // SPLIT)


def attention(
    qkv: torch.Tensor, angles: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor,
    pages: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor,
    sums: torch.Tensor, peaks: torch.Tensor, counters: torch.Tensor, *, page_tokens: int,
    capacity: int, window: int | None, rotary_dim: int, max_splits: int, splits: int,
) -> None:  # fmt: skip
    """Append each row's K and V, rotated; out [rows, heads x dim] attends to what its slot keeps.

    qkv [rows, (heads + 2 kv_heads) x dim]; angles [rows, 2, half] of the layer's rope; positions,
    slots: int32 [rows], position -1 for a row to leave out; pages: int32 [slots, n]; keys, values
    [pool rows, kv_heads, dim]. splits: programs a head, enough for every row. Scratch of float32:
    sums [rows, kv_heads, max_splits, shared, dim], peaks [rows, kv_heads, max_splits, 2, shared];
    counters: int32 zeros [rows, kv_heads], zeros again afterwards.
    """
    num_rows, dim, kv_heads = qkv.shape[0], keys.shape[2], keys.shape[1]
    heads = qkv.shape[1] // dim - 2 * kv_heads
    assert dim <= 256, f"head_dim {dim}: expected at most 256"
    assert heads % kv_heads == 0, f"{heads} heads: expected whole {kv_heads}"
    assert heads // kv_heads <= 64, f"{heads // kv_heads} queries a K head: expected at most 64"
    launch(
        _attention, (kv_heads, num_rows, splits), qkv, angles, positions, slots, pages, keys,
        values, out, sums, peaks, counters, pages.shape[1], capacity, window or 0,
        math.log2(math.e) / math.sqrt(dim), max_splits, NUM_HEADS=heads, KV_HEADS=kv_heads,
        HEAD_DIM=dim, ROTARY=rotary_dim, HALF=angles.shape[-1],
        HEADS=max(16, power_of_two(heads // kv_heads)), WIDTH=max(16, power_of_two(dim)),
        PAGE=page_tokens, RING=window is not None, SPLIT=SPLIT,
        BLOCK=128 if dim <= 128 else 64, PADDED_SHARED=power_of_two(heads // kv_heads), warps=8,
    )  # fmt: skip
