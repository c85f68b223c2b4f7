"""How decode products are cut into programs: by card, role and shape.

Never by the number of rows. Chosen by measurement on one H200
(plans/measured/2026-11-29-h200-kernels.md); for a card with less room, so that they fit it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plancc.kernels.gpu.card import KIB, Card

MAX_ROWS = 64
RING_ROWS, RING_COLUMNS, RING_WARPS = 64, 128, 4
"""Of a block of weights in a ring, and how many warps work on it."""
_RING_MOST_K = 32 * 32 * 32
"""A warp adds a row's sums of squares: 32 threads, of 32 chunks each, of 32 columns each."""
_FP32 = 4


@dataclass(frozen=True)
class Tiling:
    """block_n x block_k weights at a time; `wide`: they are the left operand of the product.

    early: how many blocks before its end a program lets the next kernel start; 0: when it ends.
    pieces: in how many parts K is cut. slots: of a ring of weights in shared memory (ring.py); 0:
    there is none.
    """

    block_n: int
    block_k: int
    wide: bool
    warps: int
    stages: int
    early: int = 0
    pieces: int = 1
    slots: int = 0

    def constants(self) -> dict[str, Any]:
        """What the kernels' launches take of it."""
        return {
            "BLOCK_N": self.block_n,
            "BLOCK_K": self.block_k,
            "WIDE": self.wide,
            "EARLY": self.early,
            "warps": self.warps,
            "stages": self.stages,
        }


def power_of_two(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def padded_rows(num_rows: int) -> int:
    """16, 32 or 64."""
    assert 1 <= num_rows <= MAX_ROWS, f"{num_rows} rows: expected 1 to {MAX_ROWS}"
    return max(16, power_of_two(num_rows))


ROLES = ("qkv", "o", "gate_up", "down", "head")
_FAST = {
    "qkv": Tiling(64, 128, wide=True, warps=4, stages=5, early=8),
    "o": Tiling(64, 128, wide=True, warps=4, stages=7, early=8, pieces=2),
    "gate_up": Tiling(64, 128, wide=True, warps=4, stages=4, early=8),
    "down": Tiling(64, 128, wide=True, warps=4, stages=6, early=24, pieces=2),
    "head": Tiling(64, 128, wide=True, warps=4, stages=4),
}
_SMALL = _FAST | {"gate_up": Tiling(64, 64, wide=True, warps=4, stages=6)}
_RINGS = {"qkv": (7, 31), "o": (7, 8), "gate_up": (4, 10), "down": (10, 16)}
"""Slots, and how many blocks before its end a program lets the next kernel start. More slots of q,
k and v would leave no room beside them for attention, whose keys come while they are made."""
_LONG_RINGS = _RINGS | {"qkv": (10, 14), "gate_up": (6, 10)}
"""Where K is longer, what is on its way in the middle of a program matters more than its start."""
_LONG_K = 4096
_EXACT = Tiling(32, 32, wide=False, warps=4, stages=3)  # float32 products are no tensor-core ones


def tiling(role: str, itemsize: int, num_rows: int, span: int, card: Card) -> Tiling:
    """Of a role in a model whose numbers have itemsize bytes; span: K, or a tile's columns.

    More rows want more room a stage, so there are fewer stages: what is summed, and in which
    order, is the same. It is not on a card with less room, which takes smaller blocks.
    """
    roles = _SMALL if card.room == "small" else _FAST
    found = roles[role] if itemsize < 4 else replace(_EXACT, pieces=_FAST[role].pieces)
    whole = span & -span  # the largest power of two that divides it
    found = replace(found, block_k=min(found.block_k, max(32, whole)))
    rows = padded_rows(num_rows)
    most = {16: found.stages, 32: 5, 64: 4}[rows]
    fit = _fitting_stages(found, 2 if role == "gate_up" else 1, itemsize, rows, span, card)
    found = replace(found, stages=min(found.stages, most, fit))
    has_blocks = whole >= RING_COLUMNS and span <= _RING_MOST_K
    rings = _RINGS if span <= _LONG_K else _LONG_RINGS
    return _with_ring(found, rings, role, itemsize, rows, card) if has_blocks else found


def _with_ring(
    found: Tiling, rings: Mapping[str, tuple[int, int]], role: str, itemsize: int, rows: int,
    card: Card,
) -> Tiling:  # fmt: skip
    """With as many slots as have room beside a result on its way out."""
    if role not in rings or itemsize != 2 or not card.has_ring:
        return found
    slots, early = rings[role]
    height = 2 * RING_ROWS if role == "gate_up" else RING_ROWS
    slot_bytes = (height + rows) * RING_COLUMNS * itemsize
    fit = (card.shared_bytes - rows * RING_ROWS * _FP32 - KIB) // slot_bytes
    return replace(found, slots=min(slots, fit), early=early)


def ring_rows(n: int, k: int, card: Card) -> int:
    """How many rows of a matrix [n, k] a program of a ring takes: as even a share of the card as
    its blocks of 64 allow, which are then not full. Of long rows all 64: they come faster."""
    if k > _LONG_K:
        return RING_ROWS

    def rows_of_busiest(rows: int) -> int:
        return -(-n // (rows * card.multiprocessors)) * rows

    return min((64, 48, 32, 16), key=rows_of_busiest)


def _fitting_stages(
    tiling: Tiling, matrices: int, itemsize: int, rows: int, span: int, card: Card
) -> int:
    """How many stages have room, beside sums of squares or finished sums on their way out."""
    other_bytes = max(rows * power_of_two(span) // 64, rows * tiling.block_n * _FP32)
    stage_bytes = (matrices * tiling.block_n + rows) * tiling.block_k * itemsize
    return (card.shared_bytes - other_bytes) // stage_bytes + card.spare_stages
