"""paged_blocks/1 in decode: rotate, append K and V, attend to all that the slot keeps.

The keys of a row are cut at every SPLIT tokens from position 0 on, whatever the length, and a
split in two halves. A half is attended to by itself, all keys and values of a split on their way at
once; the row's own key is added to the last half, and the halves are merged. A row of several
splits has a program each, and a second kernel merges them (merge.py). Neither pages, nor other
rows, nor the number of programs enter into a sum. Where the cache's numbers are wider than the
model's, half a split of them has no room: such a split is walked in smaller blocks.
Where keys lie, and all of them but the row's own, is known before the kernel that makes q has
ended, so reading begins before that (launch.py).
Refused: head_dim over 256, more than 64 query heads for a K head.
"""

import math
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.attend import LEAST, add_own, append, attend_split, key_rows, load_keys
from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous
from plancc.kernels.gpu.merge import merge, merge_two
from plancc.kernels.gpu.rotary import load_rotated
from plancc.kernels.gpu.tilings import power_of_two


@kernel
def _with_own(
    q: tensor, k: tensor, v: tensor, is_seen: tensor, mine: tensor, value: tensor, is_last: tensor,
    scale: tensor,
) -> Any:  # fmt: skip
    """A half's (peak, mass, acc), with the row's own key if it is the last."""
    peak, mass, acc = attend_split(q, k, v, is_seen, scale)
    if is_last:
        peak, mass, acc = add_own(q, mine[None, :], value[None, :], scale, peak, mass, acc)
    return peak, mass, acc


@kernel
def _walk(
    q: tensor, mine: tensor, value: tensor, keys: tensor, values: tensor, own: tensor,
    split: tensor, position: tensor, seen: tensor, capacity: tensor, columns: tensor,
    scale: tensor,
    HEAD_DIM: tl.constexpr, STRIDE: tl.constexpr, PAGE: tl.constexpr, RING: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
) -> Any:  # fmt: skip
    """A split's (peak, mass, acc), by BLOCKS blocks of BLOCK keys, merged one after the other."""
    peak, mass = tl.full([q.shape[0]], LEAST, tl.float32), tl.zeros([q.shape[0]], tl.float32)
    acc = tl.zeros([q.shape[0], q.shape[1]], tl.float32)
    last = position // BLOCK - split * BLOCKS
    for block in range(0, tl.minimum(BLOCKS, last + 1)):
        at = (split * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        is_seen = (at < position) & (at >= seen)
        k, v = load_keys(keys, values, own, at, is_seen, capacity, columns, HEAD_DIM, STRIDE, PAGE,
                         RING)  # fmt: skip
        p, m, a = _with_own(q, k, v, is_seen, mine, value, block == last, scale)
        peak, mass, acc = merge_two(peak, mass, acc, p, m, a)
    return peak, mass, acc


@kernel
def _keep(
    peak: tensor, mass: tensor, acc: tensor, out: tensor, sums: tensor, peaks: tensor,
    item: tensor, heads: tensor, places: tensor, is_in: tensor,
    SHARED: tl.constexpr, HEAD_DIM: tl.constexpr, IS_PART: tl.constexpr,
) -> Any:  # fmt: skip
    """Store what a split gave, for the merge; or what all keys of a row give, in `out`."""
    if IS_PART:
        tl.store(sums + item * SHARED * HEAD_DIM + places, acc, mask=is_in)
        tl.store(peaks + item * 2 * SHARED + heads, peak, mask=heads < SHARED)
        tl.store(peaks + item * 2 * SHARED + SHARED + heads, mass, mask=heads < SHARED)
    else:
        tl.store(out + places, (acc / mass[:, None]).to(out.dtype.element_ty), mask=is_in)


@kernel
def _place(
    own: tensor, position: tensor, capacity: tensor,
    STRIDE: tl.constexpr, PAGE: tl.constexpr, RING: tl.constexpr,
) -> Any:  # fmt: skip
    """[1]: the offset of the row's own key in its plane."""
    at, is_there = position + tl.zeros([1], tl.int32), tl.full([1], 1, tl.int1)
    return key_rows(own, at, is_there, capacity, PAGE, RING) * STRIDE


@kernel
def _own(
    qkv: tensor, row: tensor, table: tensor, keys: tensor, values: tensor, place: tensor,
    writes: tensor, head: tensor, heads: tensor, columns: tensor, is_in: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr,
) -> Any:  # fmt: skip
    """q [heads, D] of a K head, and the row's own k and v, which are appended."""
    SHARED: tl.constexpr = NUM_HEADS // KV_HEADS
    source = qkv + row * (NUM_HEADS + 2 * KV_HEADS) * HEAD_DIM
    q = load_rotated(source + (heads[:, None] + head * SHARED) * HEAD_DIM, table,
                     columns[None, :], is_in, HEAD_DIM, ROTARY, HALF)  # fmt: skip
    k, v = append(source + head * HEAD_DIM, table, keys, values, place, writes, columns,
                  NUM_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, HEAD_DIM, ROTARY, HALF)  # fmt: skip
    return q.to(source.dtype.element_ty), k, v


@entry(["pages_per_slot", "capacity", "window", "max_splits"])
def _attention(
    qkv: tensor, angles: tensor, positions: tensor, slots: tensor, pages: tensor, keys: tensor,
    values: tensor, out: tensor, sums: tensor, peaks: tensor, pages_per_slot: tensor,
    capacity: tensor, window: tensor, scale: tensor, max_splits: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
    RING: tl.constexpr, HALF_SPLIT: tl.constexpr, HALVES: tl.constexpr, BLOCKS: tl.constexpr,
    IS_PART: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    let_next_start(OVERLAP)
    SPLIT: tl.constexpr = 2 * HALF_SPLIT
    SHARED: tl.constexpr = NUM_HEADS // KV_HEADS
    STRIDE: tl.constexpr = KV_HEADS * HEAD_DIM
    head, row = tl.program_id(0), tl.program_id(1)
    position, slot = tl.load(positions + row), tl.load(slots + row)
    seen = tl.maximum(position - window + 1, 0) if RING else position * 0
    split, last = seen // SPLIT + tl.program_id(2), position // SPLIT
    if (position < 0) | (split > last):
        return
    columns, heads = tl.arange(0, WIDTH), tl.arange(0, HEADS)
    own, table = pages + slot * pages_per_slot, angles + row * 2 * HALF
    keys, values = keys + head * HEAD_DIM, values + head * HEAD_DIM
    at, own_half = split * SPLIT + tl.arange(0, HALF_SPLIT), position // HALF_SPLIT - 2 * split
    is_seen, later = (at < position) & (at >= seen), at + HALF_SPLIT
    if HALVES > 0:
        k, v = load_keys(keys, values, own, at, is_seen, capacity, columns, HEAD_DIM, STRIDE, PAGE,
                         RING)  # fmt: skip
    if HALVES == 2:
        is_late = (later < position) & (later >= seen)
        k1, v1 = load_keys(keys, values, own, later, is_late, capacity, columns, HEAD_DIM, STRIDE,
                           PAGE, RING)  # fmt: skip
    wait_for_previous(OVERLAP)  # only q, and the row's own k and v, are of this step
    places = heads[:, None] * HEAD_DIM + columns[None, :]
    is_in = (heads[:, None] < SHARED) & (columns[None, :] < HEAD_DIM)
    place = _place(own, position, capacity, STRIDE, PAGE, RING)
    q, mine, value = _own(qkv, row, table, keys, values, place, split == last, head, heads,
                          columns, is_in, NUM_HEADS, KV_HEADS, HEAD_DIM, ROTARY, HALF)  # fmt: skip
    if HALVES == 0:
        peak, mass, acc = _walk(
            q, mine, value, keys, values, own, split, position, seen, capacity, columns, scale,
            HEAD_DIM, STRIDE, PAGE, RING, SPLIT // BLOCKS, BLOCKS)  # fmt: skip
    else:
        peak, mass, acc = _with_own(q, k, v, is_seen, mine, value, own_half == 0, scale)
    if HALVES == 2:
        p1, m1, a1 = _with_own(q, k1, v1, is_late, mine, value, own_half == 1, scale)
        peak, mass, acc = merge_two(peak, mass, acc, p1, m1, a1)
    item = (row * KV_HEADS + head) * max_splits + tl.program_id(2)
    _keep(peak, mass, acc, out + (row * NUM_HEADS + head * SHARED) * HEAD_DIM, sums, peaks, item,
          heads, places, is_in, SHARED, HEAD_DIM, IS_PART)  # fmt: skip


def half_tokens(head_dim: int, itemsize: int) -> int:
    """Keys of half a split: what a program holds at a time. Of the model alone."""
    if itemsize == 4:
        return 32
    return 128 if head_dim <= 128 else 64


def max_splits(context: int, head_dim: int, itemsize: int) -> int:
    """Splits of a row of `context` tokens, for the size of scratch."""
    return -(-context // (2 * half_tokens(head_dim, itemsize)))


def attention(
    qkv: torch.Tensor, angles: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor,
    pages: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor,
    sums: torch.Tensor, peaks: torch.Tensor, *, page_tokens: int, capacity: int,
    window: int | None, rotary_dim: int, context: int, reach: int,
) -> None:  # fmt: skip
    """Append each row's K and V, rotated; out [rows, heads x dim] attends to what its slot keeps.

    qkv [rows, (heads + 2 kv_heads) x dim]; angles [rows, 2, half] of the layer's rope; positions,
    slots: int32 [rows], position -1 for a row to leave out; pages: int32 [slots, n]; keys, values
    [pool rows, kv_heads, dim]. No row has more tokens than `reach`; none ever than `context`.
    Scratch of float32, for max_splits of the context: sums [rows, kv_heads, splits, shared, dim],
    peaks [rows, kv_heads, splits, 2, shared].
    """
    num_rows, dim, kv_heads = qkv.shape[0], keys.shape[2], keys.shape[1]
    heads = qkv.shape[1] // dim - 2 * kv_heads
    assert dim <= 256, f"head_dim {dim}: expected at most 256"
    assert heads % kv_heads == 0, f"{heads} heads: expected whole {kv_heads}"
    assert heads // kv_heads <= 64, f"{heads // kv_heads} queries a K head: expected at most 64"
    half, width = half_tokens(dim, qkv.element_size()), max(16, power_of_two(dim))
    block = half_tokens(dim, max(qkv.element_size(), keys.element_size()))
    halves = 0 if block < half else 1 if reach <= half else 2
    most = max_splits(context, dim, qkv.element_size())
    programs = -(-reach // (2 * half))
    if window is not None:
        programs = min(programs, (window - 2) // (2 * half) + 2)
    sizes = {
        "NUM_HEADS": heads, "HEAD_DIM": dim, "WIDTH": width, "RING": window is not None,
    }  # fmt: skip
    launch(
        _attention, (kv_heads, num_rows, programs), qkv, angles, positions, slots, pages, keys,
        values, out, sums, peaks, pages.shape[1], capacity, window or 0,
        math.log2(math.e) / math.sqrt(dim), most, **sizes, KV_HEADS=kv_heads, ROTARY=rotary_dim,
        HALF=angles.shape[-1], HEADS=max(16, power_of_two(heads // kv_heads)), PAGE=page_tokens,
        HALF_SPLIT=half, HALVES=halves, BLOCKS=2 * half // block, IS_PART=programs > 1, warps=4,
    )  # fmt: skip
    if programs > 1:
        launch(merge, (heads, num_rows), positions, sums, peaks, out, window or 0, most, **sizes,
               SHARED=heads // kv_heads, SPLIT=2 * half, warps=4)  # fmt: skip
