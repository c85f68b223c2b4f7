"""paged_blocks/1 for prompt rows: append their K and V, then causal attention over the cache.

A row walks blocks of BLOCK_N keys aligned to position 0 with a running maximum. A block that it
does not see changes nothing, so its bits depend neither on the rows beside it nor on the chunk.
Where the chunk stands is read on the device, so that a graph serves every chunk of as many blocks.
Refused: head_dim over 256.
"""

import math
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.attend import LEAST, key_rows
from plancc.kernels.gpu.card import Card, card_of
from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, product, wait_for_previous
from plancc.kernels.gpu.rotary import load_rotated
from plancc.kernels.gpu.tilings import power_of_two


@kernel
def _load_chunk(chunk: tensor) -> Any:
    """(position of the first row, rows, slot)."""
    return tl.load(chunk), tl.load(chunk + 1), tl.load(chunk + 2)


@entry(["num_pages", "capacity"])
def _append(
    qkv: tensor, angles: tensor, pages: tensor, keys: tensor, values: tensor, chunk: tensor,
    num_pages: tensor, capacity: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, RING: tl.constexpr,
    BLOCK_M: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    first, num_rows, slot = _load_chunk(chunk)
    head = tl.program_id(1)
    rows, columns = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    wide, is_row = rows.to(tl.int64)[:, None], rows < num_rows
    is_in = is_row[:, None] & (columns[None, :] < HEAD_DIM)
    source = qkv + (wide * (NUM_HEADS + 2 * KV_HEADS) + NUM_HEADS + head) * HEAD_DIM
    k = load_rotated(source, angles + wide * 2 * HALF, columns[None, :], is_in, HEAD_DIM, ROTARY,
                     HALF)  # fmt: skip
    v = tl.load(source + KV_HEADS * HEAD_DIM + columns[None, :], mask=is_in, other=0.0)
    pages += slot * num_pages
    place = key_rows(pages, first + rows, is_row, capacity, PAGE, RING)[:, None]
    at = (place * KV_HEADS + head) * HEAD_DIM + columns[None, :]
    tl.store(keys + at, k.to(keys.dtype.element_ty), mask=is_in)
    tl.store(values + at, v.to(values.dtype.element_ty), mask=is_in)


@entry(["num_pages", "capacity", "window"])
def _attention(
    qkv: tensor, angles: tensor, pages: tensor, keys: tensor, values: tensor, out: tensor,
    chunk: tensor, num_pages: tensor, capacity: tensor, window: tensor, scale: tensor,
    NUM_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROTARY: tl.constexpr,
    HALF: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, RING: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    wait_for_previous(OVERLAP)
    first, num_rows, slot = _load_chunk(chunk)
    STRIDE: tl.constexpr = KV_HEADS * HEAD_DIM
    # The longest first: what is left over at the end is short.
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    rows, columns = block * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    wide = rows.to(tl.int64)[:, None]
    is_in = (rows[:, None] < num_rows) & (columns[None, :] < HEAD_DIM)
    source = qkv + wide * (NUM_HEADS + 2 * KV_HEADS) * HEAD_DIM + head * HEAD_DIM
    q = load_rotated(source, angles + wide * 2 * HALF, columns[None, :], is_in, HEAD_DIM, ROTARY,
                     HALF).to(qkv.dtype.element_ty)  # fmt: skip
    at = first + rows
    pages += slot * num_pages
    kv = head // (NUM_HEADS // KV_HEADS) * HEAD_DIM
    peak, mass = tl.full([BLOCK_M], LEAST, tl.float32), tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    start = tl.maximum(first + block * BLOCK_M - window + 1, 0) if RING else first * 0
    end = first + tl.minimum((block + 1) * BLOCK_M, num_rows)
    for key in range(start // BLOCK_N * BLOCK_N, end, BLOCK_N):
        theirs = key + tl.arange(0, BLOCK_N)
        is_there = (theirs < end) & (theirs >= start)
        places = key_rows(pages, theirs, is_there, capacity, PAGE, RING) * STRIDE + kv
        is_key = is_there[:, None] & (columns[None, :] < HEAD_DIM)
        k = tl.load(keys + places[:, None] + columns[None, :], mask=is_key, other=0.0)
        v = tl.load(values + places[:, None] + columns[None, :], mask=is_key, other=0.0)
        scores = product(q, tl.trans(k.to(q.dtype)), tl.zeros([BLOCK_M, BLOCK_N], tl.float32))
        is_seen = theirs[None, :] <= at[:, None]
        if RING:
            is_seen &= theirs[None, :] > at[:, None] - window
        scores = tl.where(is_seen, scores * scale, LEAST)
        top = tl.maximum(peak, tl.max(scores, 1))
        old = tl.exp2(peak - top)
        weights = tl.where(is_seen, tl.exp2(scores - top[:, None]), 0.0)
        mass = mass * old + tl.sum(weights, 1)
        acc = product(weights.to(q.dtype), v.to(q.dtype), acc * old[:, None])
        peak = top
    acc = acc / tl.where(mass > 0, mass, 1.0)[:, None]
    tl.store(out + (wide * NUM_HEADS + head) * HEAD_DIM + columns[None, :],
             acc.to(out.dtype.element_ty), mask=is_in)  # fmt: skip


def prompt_attention(
    qkv: torch.Tensor, angles: torch.Tensor, pages: torch.Tensor, keys: torch.Tensor,
    values: torch.Tensor, out: torch.Tensor, chunk: torch.Tensor, *, page_tokens: int,
    capacity: int, window: int | None, rotary_dim: int,
) -> None:  # fmt: skip
    """Append the rows' K and V; out [rows, heads x dim] attends to the slot's keys before each.

    chunk: int32 [3] on the device: the first row's position, how many of the rows count, which
    stand at it, the next position and so on, and their slot. pages: int32 [slots, n]; the rest is
    as in attention.attention.
    """
    rows, dim, kv_heads = qkv.shape[0], keys.shape[2], keys.shape[1]
    where = (chunk, pages.shape[-1], capacity)
    heads = qkv.shape[1] // dim - 2 * kv_heads
    assert dim <= 256, f"head_dim {dim}: expected at most 256"
    sizes = {
        "NUM_HEADS": heads, "KV_HEADS": kv_heads, "HEAD_DIM": dim, "ROTARY": rotary_dim,
        "HALF": angles.shape[-1], "WIDTH": max(16, power_of_two(dim)), "PAGE": page_tokens,
        "RING": window is not None,
    }  # fmt: skip
    launch(_append, (-(-rows // 16), kv_heads), qkv, angles, pages, keys, values, *where, **sizes,
           BLOCK_M=16, warps=4)  # fmt: skip
    block_m, block_n, warps, stages = _blocks(
        dim, qkv.element_size(), keys.element_size(), card_of(qkv.device)
    )
    launch(
        _attention, (-(-rows // block_m), heads), qkv, angles, pages, keys, values, out, *where,
        window or 0, math.log2(math.e) / math.sqrt(dim), **sizes, BLOCK_M=block_m, BLOCK_N=block_n,
        warps=warps, stages=stages,
    )  # fmt: skip


def _blocks(
    head_dim: int, itemsize: int, kv_itemsize: int, card: Card
) -> tuple[int, int, int, int]:
    """(rows, keys at a time, warps, stages) of a program. Keys that are wider than the model's
    numbers are fewer at a time; those that are widened take more registers."""
    is_tight = head_dim > 128 and card.room == "small"
    if itemsize == 4:
        return 32, 32, 4 if kv_itemsize == 4 else 8, 1 if is_tight else 2
    if kv_itemsize > itemsize:
        return (128 if head_dim <= 128 else 64), 32, 8, 1 if is_tight else 2
    if head_dim <= 128:
        return 128, 128, 8, 2
    return 64, 32 if is_tight else 64, 8, 2
