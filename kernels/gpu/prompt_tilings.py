"""How prompt products are cut into programs: one place for all choices.

Chosen by measurement on one H200 (tests/bench/prefill_gpu.py); for a card with less room, so that
they fit it and its registers, which hold operands where tensor cores do not read shared memory.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from plancc.kernels.gpu.card import Card, card_of
from plancc.kernels.gpu.tree import MAX_LEVELS

ALL_HELD = MAX_LEVELS
MANY_ROWS = 2048
"""Rows from which on a plain product takes the larger blocks. Both ways have the same bits, which
tests/gpu asks on the card, so the number of rows may choose."""
_LOWEST, _LOWEST_EXACT = 64, 32  # rows of a block, of all prompt kernels that walk keys or K
_COPY_ALIGN_BYTES = 16


@dataclass(frozen=True)
class PromptTiling:
    """block_m x block_n sums at a time, K in blocks of block_k.

    held: how many waiting sums stay in registers: none, 1 (a tile), 2 (two tiles as well) or
    ALL_HELD. copies: the tensor copy engine loads, where it can. programs: how many on a
    multiprocessor. height: row blocks whose programs are neighbours: they share columns of w.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    held: int = 0
    copies: bool = True
    programs: int = 1
    height: int = 8


MANY = PromptTiling(128, 256, 64, warps=8, stages=4)
MANY_JOINED = PromptTiling(256, 128, 64, warps=8, stages=4)
_PLAIN = replace(MANY, copies=False)
_PLAIN_JOINED = PromptTiling(128, 128, 64, warps=8, stages=4, copies=False)
_DOWN = PromptTiling(128, 128, 128, warps=8, stages=3, held=2)
_GATE_UP = PromptTiling(128, 128, 64, warps=8, stages=4)
_EXACT = PromptTiling(32, 32, 32, warps=4, stages=2, held=ALL_HELD, copies=False, programs=16)
_DOWN_BY_ROOM = {
    "large": _DOWN,
    "middle": replace(_DOWN, block_k=32, stages=6, copies=False),
    "small": replace(_DOWN, block_k=32, stages=5, copies=False),
}
_GATE_UP_BY_ROOM = {
    "large": _GATE_UP,
    "middle": replace(_GATE_UP, block_k=32, stages=6, copies=False),
    "small": replace(_GATE_UP, block_k=32, stages=5, copies=False),
}


def down_tiling(itemsize: int, card: Card) -> PromptTiling:
    """Of models whose numbers have so many bytes; float32 products are no tensor-core ones."""
    return _EXACT if itemsize == 4 else _DOWN_BY_ROOM[card.room]


def gate_up_tiling(itemsize: int, card: Card) -> PromptTiling:
    return _EXACT if itemsize == 4 else _GATE_UP_BY_ROOM[card.room]


def plain_tiling(itemsize: int, card: Card, *, joins: bool) -> PromptTiling:
    """Of q, k, v and the output projection, loaded by pointers."""
    if itemsize == 4:
        return _EXACT
    return _PLAIN_JOINED if joins or card.room == "small" else _PLAIN


def many_tiling(itemsize: int, card: Card, num_rows: int, *, joins: bool) -> PromptTiling | None:
    """The same of many rows, where they have larger blocks, by the copy engine."""
    if num_rows < MANY_ROWS or itemsize == 4 or card.room != "large":
        return None
    return MANY_JOINED if joins else MANY


def filled_rows(num_rows: int, itemsize: int) -> int:
    """Up to whole blocks: launches for so many rows have no more programs that work than those for
    num_rows."""
    block = _LOWEST_EXACT if itemsize == 4 else _LOWEST
    return -(-num_rows // block) * block


def waiting_slots(tiling: PromptTiling, tiles: int) -> int:
    """How many sums of a program wait in memory at a time, at most."""
    return max(0, (tiles - 1).bit_length() - tiling.held)


def waiting_size(tiling: PromptTiling, tiles: int, programs: int) -> int:
    """Float32 numbers that so many programs want for their waiting sums."""
    return programs * waiting_slots(tiling, tiles) * tiling.block_m * tiling.block_n


def programs_of(tiling: PromptTiling, blocks: int, device: torch.device) -> int:
    """How many programs walk so many output blocks; in the interpreter two, one after the other."""
    if device.type == "cpu":
        return min(blocks, 2)
    return min(blocks, card_of(device).multiprocessors * tiling.programs)


def fitting(
    tiling: PromptTiling, x: torch.Tensor, w: torch.Tensor, span: int, *, is_even: bool
) -> PromptTiling:
    """The tiling for rows of x and w and spans of at most `span` columns, all alike if is_even."""
    block_k = min(tiling.block_k, max(32, span & -span))
    copies = tiling.copies and is_even and span % block_k == 0 and is_copied(x, w)
    copies = copies and card_of(x.device).can_copy
    return _changed(tiling, block_k, copies=copies)


@cache
def _changed(tiling: PromptTiling, block_k: int, *, copies: bool) -> PromptTiling:
    return replace(tiling, block_k=block_k, copies=copies)


def is_copied(*matrices: torch.Tensor) -> bool:
    """Whether the tensor copy engine can load blocks of these rows."""
    places = [place for each in matrices
              for place in (each.data_ptr(), each.stride(0) * each.element_size())]  # fmt: skip
    return all(place % _COPY_ALIGN_BYTES == 0 for place in places)


def sources(x: torch.Tensor, w: torch.Tensor, tiling: PromptTiling) -> tuple[Any, Any]:
    if not tiling.copies:
        return x, w
    return (TensorDescriptor.from_tensor(x, [tiling.block_m, tiling.block_k]),
            TensorDescriptor.from_tensor(w, [tiling.block_n, tiling.block_k]))  # fmt: skip


def constants(tiling: PromptTiling) -> dict[str, Any]:
    return {"BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n, "BLOCK_K": tiling.block_k,
            "COPIES": tiling.copies, "HEIGHT": tiling.height, "warps": tiling.warps,
            "stages": tiling.stages}  # fmt: skip
