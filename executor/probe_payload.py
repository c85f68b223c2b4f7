"""Does what one device writes into another's memory arrive? Asked, never believed.

Drivers report peer access on machines where writes are dropped, in part or from some size on, and
no error is told. So random bytes are sent and their complements, each into both slots of the link:
no byte that lay there before can pass for one that came.
"""

from collections.abc import Callable

import torch

from plancc.ir.units import format_bytes

KIB, MIB = 2**10, 2**20
SIZES = (KIB, 4 * KIB, 64 * KIB, MIB, 64 * MIB)
_PAGE = 4 * KIB

Carry = Callable[[torch.Tensor], torch.Tensor]
"""Bytes [size] of the host, sent from the source -> what then lies at the target, on the host."""


def payload_problem(carry_of: Callable[[int], Carry], sizes: tuple[int, ...] = SIZES) -> str | None:
    """What is wrong with what arrived, at the first size where something is; None if nothing is.

    carry_of: a size in bytes -> how so many are carried, over the link that runs would use.
    """
    for size in sizes:
        carry = carry_of(size)
        for sent in _patterns(size):
            if problem := _difference(sent, carry(sent)):
                return f"of {format_bytes(size)} sent, {problem}"
    return None


def _patterns(size: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(size)
    first = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    other = 255 - first
    return first, other, other, first


def _difference(sent: torch.Tensor, arrived: torch.Tensor) -> str | None:
    assert sent.shape == arrived.shape
    assert arrived.dtype == torch.uint8
    wrong = sent != arrived
    if not wrong.any():
        return None
    places = wrong.nonzero().flatten()
    pages = int(torch.unique(places // _PAGE).numel())
    total = -(-sent.numel() // _PAGE)
    return (f"{places.numel()} byte(s) in {pages} of {total} pages did not arrive, the first at "
            f"{int(places[0])}")  # fmt: skip
