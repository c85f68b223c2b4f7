"""What a card has that kernels are cut by. Nothing else asks a device what it is."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch

KIB = 1024
Room = Literal["large", "middle", "small"]
_LARGE_BYTES, _MIDDLE_BYTES = 227 * KIB, 163 * KIB


@dataclass(frozen=True)
class Card:
    """shared_bytes: shared memory that a program may have, at most."""

    capability: tuple[int, int]
    shared_bytes: int
    multiprocessors: int

    @property
    def can_overlap(self) -> bool:
        """Whether a kernel may be launched while the one before it still runs."""
        return self.capability >= (9, 0)

    @property
    def can_copy(self) -> bool:
        """Whether an engine copies blocks of matrices into shared memory (TMA)."""
        return self.capability >= (9, 0)

    @property
    def has_ring(self) -> bool:
        """Whether decode products take weights from a ring (ring.py): tensor cores that read both
        operands in shared memory, by instructions that this kind alone has."""
        return self.capability == (9, 0)

    @property
    def room(self) -> Room:
        """Which tilings have room: large from 227 KiB on, middle from 163 KiB on."""
        if self.shared_bytes >= _LARGE_BYTES:
            return "large"
        return "middle" if self.shared_bytes >= _MIDDLE_BYTES else "small"

    @property
    def spare_stages(self) -> int:
        """Stages of a product's loop beyond the blocks that it keeps in shared memory: where tensor
        cores read those there, none; where they read registers, the block that lies there."""
        return 1 if self.capability[0] in (8, 12) else 0


HOPPER = Card((9, 0), 227 * KIB, 132)
HOST = HOPPER
"""What the host passes for, where Triton interprets."""


def card_of(device: torch.device) -> Card:
    """The card that a device is."""
    return HOST if device.type == "cpu" else card_at(device.index)


@cache
def card_at(ordinal: int) -> Card:
    """The card of this process's CUDA device."""
    found: Any = torch.cuda.get_device_properties(ordinal)  # its stubs lack what a build may have
    return Card((found.major, found.minor), found.shared_memory_per_block_optin,
                found.multi_processor_count)  # fmt: skip
