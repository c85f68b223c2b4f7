"""Decode products on a Hopper card: weights come by TMA into a ring of slots in shared memory.

The first SLOTS - 1 blocks of weights are asked for before the kernel waits for the one before it,
so memory does not stand still between two kernels; rows follow after that wait. Blocks of K and
their order are those of sums.py and tree.py, and so are the bits: whoever has no ring loses
nothing but time. Triton cannot say this of a loop (it asks for weights and rows together), Gluon
can. Not interpreted: `make test-gpu` compares it with the other kernels, bit by bit.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language import tensor

from plancc.kernels.gpu.jit import gluon_kernel
from plancc.kernels.gpu.launch import IS_INTERPRETED, let_next_start
from plancc.kernels.gpu.norm import add_pairs
from plancc.kernels.gpu.tilings import RING_COLUMNS, RING_ROWS, RING_WARPS, Tiling

_WARPS: gl.constexpr = gl.constexpr(RING_WARPS)
_BYTES: gl.constexpr = gl.constexpr(2)  # of a number: bfloat16 or float16
FULL: gl.constexpr = gl.constexpr(RING_ROWS)
"""Rows of one matrix in a block of weights. HEIGHT is that of all its matrices, one or two; TAKEN,
how many of FULL a program uses."""
AS_ROWS: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [RING_WARPS, 1], [1, 0]))
"""[rows, columns] of a result: eight neighbouring columns a thread."""


def takes_ring(tiling: Tiling, bounds: Sequence[int]) -> bool:
    """Whether a product takes its weights from a ring: where its tiles are whole blocks, all of one
    width. The interpreter knows no ring.

    bounds: borders of the tiles; (0, K) where there are none.
    """
    if not tiling.slots or IS_INTERPRETED:
        return False
    width = bounds[1] - bounds[0]
    return width % RING_COLUMNS == 0 and all(b - a == width for a, b in pairwise(bounds))


def descriptor(matrix: torch.Tensor, rows: int) -> TensorDescriptor:
    """By what TMA loads so many rows of matrix [n, K] at a time; zeros past its end."""
    block = [rows, RING_COLUMNS]
    layout = gl.NVMMASharedLayout.get_default_for(block, _FORMATS[matrix.dtype])
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), block, layout)


_FORMATS = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@gluon_kernel
def open_ring(w: tensor, x: tensor, HEIGHT: gl.constexpr, SLOTS: gl.constexpr) -> Any:
    """(barriers, slots of weights [SLOTS, HEIGHT, columns], slots of rows)."""
    bars = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(bars.index(i), count=1)
    fence_async_shared()
    ROWS: gl.constexpr = x.block_type.shape[0]
    COLUMNS: gl.constexpr = x.block_type.shape[1]
    w_slots = gl.allocate_shared_memory(w.dtype, [SLOTS, HEIGHT, COLUMNS], w.layout)
    x_slots = gl.allocate_shared_memory(x.dtype, [SLOTS, ROWS, COLUMNS], x.layout)
    return bars, w_slots, x_slots


@gluon_kernel
def _ask_weights(
    w: tensor, bars: tensor, w_slots: tensor, row: tensor, up: tensor, block: tensor, slot: tensor,
    HEIGHT: gl.constexpr, TAKEN: gl.constexpr, ROWS: gl.constexpr,
) -> Any:  # fmt: skip
    """One block of K: TAKEN rows from `row` on, and of a second matrix as many from `up` on."""
    BOX: gl.constexpr = w.block_type.shape[0]
    COLUMNS: gl.constexpr = w.block_type.shape[1]
    MATRICES: gl.constexpr = HEIGHT // FULL
    mbarrier.expect(bars.index(slot), (MATRICES * TAKEN + ROWS) * COLUMNS * _BYTES)
    for i in gl.static_range(TAKEN // BOX):
        box = w_slots.index(slot).slice(i * BOX, BOX)
        tma.async_copy_global_to_shared(w, [row + i * BOX, block * COLUMNS], bars.index(slot), box)
        if MATRICES == 2:
            box = w_slots.index(slot).slice(FULL + i * BOX, BOX)
            tma.async_copy_global_to_shared(w, [up + i * BOX, block * COLUMNS], bars.index(slot),
                                            box)  # fmt: skip


@gluon_kernel
def _ask_rows(x: tensor, bars: tensor, x_slots: tensor, block: tensor, slot: tensor) -> Any:
    COLUMNS: gl.constexpr = x.block_type.shape[1]
    tma.async_copy_global_to_shared(x, [0, block * COLUMNS], bars.index(slot), x_slots.index(slot))


@gluon_kernel
def ask_first_weights(
    w: tensor, bars: tensor, w_slots: tensor, row: tensor, up: tensor, first: tensor, end: tensor,
    HEIGHT: gl.constexpr, TAKEN: gl.constexpr, ROWS: gl.constexpr, SLOTS: gl.constexpr,
) -> Any:  # fmt: skip
    """All slots but one, of blocks [first, end). May come before the wait for the last kernel."""
    for i in gl.static_range(SLOTS - 1):
        if first + i < end:
            _ask_weights(w, bars, w_slots, row, up, first + i, i, HEIGHT, TAKEN, ROWS)


@gluon_kernel
def ask_first_rows(
    x: tensor, bars: tensor, x_slots: tensor, first: tensor, end: tensor, SLOTS: gl.constexpr
) -> Any:
    """The rows for them."""
    for i in gl.static_range(SLOTS - 1):
        if first + i < end:
            _ask_rows(x, bars, x_slots, first + i, i)


@gluon_kernel
def no_sum(x: tensor, HEIGHT: gl.constexpr) -> Any:
    """[HEIGHT, ROWS] zeros, as sums lie."""
    ROWS: gl.constexpr = x.block_type.shape[0]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[_WARPS, 1], instr_shape=[16, ROWS, 16]
    )
    return gl.zeros([HEIGHT, ROWS], gl.float32, SUMS)


@gluon_kernel
def sum_blocks(
    w: tensor, x: tensor, bars: tensor, w_slots: tensor, x_slots: tensor, row: tensor, up: tensor,
    origin: tensor, first: tensor, end: tensor, last: tensor,
    HEIGHT: gl.constexpr, TAKEN: gl.constexpr, SLOTS: gl.constexpr, EARLY: gl.constexpr,
    OVERLAP: gl.constexpr,
) -> Any:  # fmt: skip
    """[HEIGHT, ROWS]: the sum over blocks [first, end) of K, in their order. Of every FULL rows the
    first TAKEN mean something.

    The program's blocks are [origin, last): of those beyond `end` some are asked for on the way.
    The next kernel may start when EARLY of them are left.
    """
    ROWS: gl.constexpr = x.block_type.shape[0]
    acc = no_sum(x, HEIGHT)
    for block in range(first, end):
        slot, turn = (block - origin) % SLOTS, (block - origin) // SLOTS
        mbarrier.wait(bars.index(slot), turn & 1)
        turned = x_slots.index(slot).permute((1, 0))
        acc = warpgroup_mma(w_slots.index(slot), turned, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        tl.debug_barrier()  # everybody is through with the block before: its slot is free
        later = block + SLOTS - 1
        if later < last:
            free = (later - origin) % SLOTS
            _ask_weights(w, bars, w_slots, row, up, later, free, HEIGHT, TAKEN, ROWS)
            _ask_rows(x, bars, x_slots, later, free)
        if block == last - 1 - EARLY:
            let_next_start(OVERLAP)
    return warpgroup_mma_wait(0, deps=(acc,))


@gluon_kernel
def close_ring(bars: tensor) -> Any:
    """Use the barriers a last time, so that the compiler puts nothing else where they lie."""
    mbarrier.invalidate(bars.index(0))


@gluon_kernel
def as_rows(acc: tensor) -> Any:
    """[ROWS, columns] of a sum [columns, ROWS]."""
    return gl.convert_layout(gl.permute(acc, (1, 0)), AS_ROWS)


@gluon_kernel
def scale_of(
    squares: tensor, num_rows: tensor, eps: tensor,
    K: gl.constexpr, ROWS: gl.constexpr, CHUNK: gl.constexpr, EACH: gl.constexpr,
    LEVELS: gl.constexpr, THREADS: gl.constexpr, MORE: gl.constexpr,
) -> Any:  # fmt: skip
    """[ROWS]: as norm.rms_scale; EACH = 2^LEVELS chunks a thread, THREADS = 2^MORE for a row."""
    NUM: gl.constexpr = (K + CHUNK - 1) // CHUNK
    PARTS: gl.constexpr = gl.BlockedLayout([1, EACH], [32 // THREADS, THREADS], [_WARPS, 1], [1, 0])
    TOTALS: gl.constexpr = gl.BlockedLayout([1, THREADS], [32, 1], [_WARPS, 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, PARTS))[:, None]
    chunks = gl.arange(0, EACH * THREADS, gl.SliceLayout(0, PARTS))[None, :]
    is_in = (rows < num_rows) & (chunks < NUM)
    parts = gl.load(squares + rows * NUM + chunks, mask=is_in, other=0.0)
    sums = gl.convert_layout(add_pairs(parts, LEVELS), TOTALS)
    total = gl.reshape(add_pairs(sums, MORE), [ROWS])
    total = gl.convert_layout(total, gl.SliceLayout(1, AS_ROWS))
    return tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(total, K * 1.0) + eps))


@gluon_kernel
def store_squares(
    wide: tensor, squares: tensor, num_rows: tensor, first: tensor,
    N: gl.constexpr, CHUNK: gl.constexpr,
) -> Any:  # fmt: skip
    """Sums of squares of rows [ROWS, 64], columns from `first` on, as norm.write_residual."""
    ROWS: gl.constexpr = wide.shape[0]
    NUM: gl.constexpr = (N + CHUNK - 1) // CHUNK
    HERE: gl.constexpr = wide.shape[1] // CHUNK
    FOURS: gl.constexpr = gl.BlockedLayout([1, 4], [16, 2], [_WARPS, 1], [1, 0])
    ONES: gl.constexpr = gl.BlockedLayout([1, 1], [16, 2], [_WARPS, 1], [1, 0])
    sums = gl.convert_layout(add_pairs(wide * wide, 3), FOURS)
    sums = gl.convert_layout(add_pairs(sums, 2), ONES)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, ONES))[:, None]
    chunks = first // CHUNK + gl.arange(0, HERE, gl.SliceLayout(0, ONES))[None, :]
    is_in = (rows < num_rows) & (chunks < NUM)
    gl.store(squares + rows * NUM + chunks, sums, mask=is_in)
