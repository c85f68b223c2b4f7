"""How prompt products are cut into programs: one place for all choices.

Chosen by measurement on one H200 (tests/bench/prefill_gpu.py); for a card with less room, so that
they fit it and its registers, which hold operands where tensor cores do not read shared memory.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from plancc.kernels.gpu.card import Card, Room, card_of
from plancc.kernels.gpu.tree import MAX_LEVELS

ALL_HELD = MAX_LEVELS
_LOWEST, _LOWEST_EXACT = 64, 32  # rows of a block, of all prompt kernels that walk keys or K
_COPY_ALIGN_BYTES = 16
_HELD = 2  # sums of tiles that wait in registers


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


_EXACT = PromptTiling(32, 32, 32, warps=4, stages=2, held=ALL_HELD, copies=False, programs=16)

Blocks = tuple[tuple[int, PromptTiling], ...]
"""Ways to cut one product, the largest first, and microseconds that a block of each took on an H200
(K of 4,096; of down 14,336) where every multiprocessor had one."""


def _by_pointers(*blocks: tuple[int, PromptTiling]) -> Blocks:
    return tuple((us, replace(tiling, copies=False)) for us, tiling in blocks)


_LARGE, _SQUARE = PromptTiling(128, 256, 64, 8, 4), PromptTiling(128, 128, 64, 8, 5)
_FLAT, _LOW = PromptTiling(64, 128, 64, 4, 6), PromptTiling(64, 64, 128, 4, 5)
_THIN, _THIN_FLAT = PromptTiling(128, 128, 32, 8, 6), PromptTiling(64, 128, 32, 8, 6)
_THIN_LOW = PromptTiling(64, 64, 64, 4, 5)
_PLAIN: dict[Room, Blocks] = {
    # descriptors for the copy engine cost the host more than small blocks gain by it
    "large": ((45, _LARGE), (24, _SQUARE), (17, _FLAT), *_by_pointers((14, _LOW))),
    "middle": _by_pointers((45, _LARGE), (24, replace(_SQUARE, stages=4)), (17, _FLAT), (14, _LOW)),
    "small": _by_pointers((24, replace(_SQUARE, stages=4)), (17, replace(_FLAT, stages=4)),
                          (14, replace(_THIN_LOW, stages=4))),
}  # fmt: skip
_DOWN: dict[Room, Blocks] = {
    "large": ((102, PromptTiling(128, 128, 128, 8, 3)), (65, _FLAT), (43, _LOW)),
    "middle": _by_pointers((102, _THIN), (65, _THIN_FLAT), (43, _THIN_LOW)),
    "small": _by_pointers((102, replace(_THIN, stages=5)), (65, replace(_THIN_FLAT, stages=5)),
                          (43, replace(_THIN_LOW, stages=4))),
}  # fmt: skip
_GATE_UP: dict[Room, Blocks] = {
    "large": ((45, replace(_SQUARE, stages=4)), (30, replace(_FLAT, stages=5))),
    "middle": _by_pointers((45, _THIN), (30, _THIN_FLAT)),
    "small": _by_pointers((45, replace(_THIN, stages=5)), (30, replace(_THIN_FLAT, stages=5))),
}


def plain_tiling(itemsize: int, card: Card, rows: int, columns: int) -> PromptTiling:
    """Of q, k, v and the output projection: so many rows, and columns of the result."""
    return _fastest(_PLAIN[card.room], itemsize, card, rows, columns)


def down_tiling(itemsize: int, card: Card, rows: int, columns: int) -> PromptTiling:
    """Of models whose numbers have so many bytes; float32 products are no tensor-core ones."""
    found = _fastest(_DOWN[card.room], itemsize, card, rows, columns)
    return found if found == _EXACT else replace(found, held=_HELD)


def gate_up_tiling(itemsize: int, card: Card, rows: int, columns: int) -> PromptTiling:
    return _fastest(_GATE_UP[card.room], itemsize, card, rows, columns)


@cache
def _fastest(blocks: Blocks, itemsize: int, card: Card, rows: int, columns: int) -> PromptTiling:
    """The blocks that end first where each multiprocessor takes one, then the next.

    All ways have the same bits, which tests/gpu asks on the card, so rows may choose.
    """
    if itemsize == 4:
        return _EXACT

    def end_us(way: tuple[int, PromptTiling]) -> int:
        block_us, tiling = way
        return block_us * -(-_num_blocks(tiling, rows, columns) // card.multiprocessors)

    return min(blocks, key=end_us)[1]


def _num_blocks(tiling: PromptTiling, rows: int, columns: int) -> int:
    return -(-rows // tiling.block_m) * -(-columns // tiling.block_n)


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
