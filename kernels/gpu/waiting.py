"""Sums of finished subtrees that wait in memory or in registers, for blocks too large for tree.py.

Memory: a slot of a block's size for each level of the tree, a program's own, small enough to stay
in the second-level cache. What is added to what, and in which order, is as in tree.py.
"""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel
from plancc.kernels.gpu.launch import IS_INTERPRETED

_INTERPRETED = tl.constexpr(IS_INTERPRETED)


@kernel
def _scratch_at(
    scratch: tensor, slot: tensor, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WARPS: tl.constexpr
) -> Any:
    """Where each sum of a block waits: neighbours in a warp are neighbours in memory where the
    block is laid out as a tensor-core product; any other layout is right too, only slower."""
    r, c = tl.arange(0, BLOCK_M)[:, None], tl.arange(0, BLOCK_N)[None, :]
    ABOVE: tl.constexpr = WARPS if BLOCK_M >= 16 * WARPS else BLOCK_M // 16  # warps, 16 rows each
    thread = r // 16 % ABOVE * 32 + r % 8 * 4 + c % 8 // 2
    register = (r // (16 * ABOVE) * (BLOCK_N // 8) + c // 8) * 4 + r // 8 % 2 * 2 + c % 2
    return scratch + slot * (BLOCK_M * BLOCK_N) + thread + register * (ABOVE * 32)


@kernel
def push_waiting(
    value: tensor, scratch: tensor, depth: tensor, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WARPS: tl.constexpr,
) -> Any:  # fmt: skip
    """How many sums wait once value waits above `depth` others."""
    depth = _meet(depth)
    _put(_scratch_at(scratch, depth, BLOCK_M, BLOCK_N, WARPS), value)
    return depth + 1


@kernel
def _put(at: tensor, value: tensor) -> Any:
    """As tl.store, but in the layout that value has: tl.store would turn it in shared memory."""
    if _INTERPRETED:
        tl.store(at, value)
    else:
        tl.inline_asm_elementwise(
            "st.global.f32 [$1], $2; mov.b32 $0, 0;", "=r,l,f", [at.to(tl.uint64), value],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@kernel
def _get(at: tensor) -> Any:
    """As tl.load, in the layout of what it is added to."""
    if _INTERPRETED:
        value = tl.load(at)
    else:
        value = tl.inline_asm_elementwise(
            "ld.global.cg.f32 $0, [$1];", "=f,l", [at.to(tl.uint64)],
            dtype=tl.float32, is_pure=False, pack=1,
        )  # fmt: skip
    return value


@kernel
def _meet(depth: tensor) -> Any:
    """depth, once all threads are here and see what the others put: who gets a sum may be another
    thread than put it. tl.debug_barrier would keep the compiler from overlapping the loop."""
    if _INTERPRETED:
        same = depth
    else:
        same = tl.inline_asm_elementwise(
            "bar.sync 0; mov.b32 $0, $1;", "=r,r", [depth], dtype=tl.int32, is_pure=False, pack=1
        )
    return same


@kernel
def complete(acc: tensor) -> Any:
    """acc; a use that the compiler waits for the product before, outside of any branch."""
    if _INTERPRETED:
        value = acc
    else:
        value = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=f,f", [acc], dtype=tl.float32, is_pure=True, pack=1
        )
    return value


@kernel
def add_waiting(
    value: tensor, scratch: tensor, depth: tensor, count: tensor, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, WARPS: tl.constexpr,
) -> Any:  # fmt: skip
    """(value joined by the topmost `count` of `depth` waiting sums, how many still wait)."""
    end = depth - count
    while depth > end:
        depth = _meet(depth - 1)
        value = _get(_scratch_at(scratch, depth, BLOCK_M, BLOCK_N, WARPS)) + value
    return value, depth


@kernel
def add_held(
    value: tensor, leaf: tensor, pair: tensor, is_leaf: tensor, is_pair: tensor, count: tensor,
    HELD: tl.constexpr,
) -> Any:  # fmt: skip
    """(value joined by at most `count` sums held in registers, is the pair still held, the rest
    of count). A leaf is above a pair, and a pair above what waits in memory: the node that a
    pair is left in has two tiles on its right at most."""
    if HELD > 0:
        value = tl.where(is_leaf, leaf + value, value)
        count -= is_leaf.to(tl.int32)
    if HELD > 1:
        joins = is_pair & (count > 0)
        value = tl.where(joins, pair + value, value)
        count -= joins.to(tl.int32)
        is_pair = is_pair & (joins == 0)
    return value, is_pair, count
