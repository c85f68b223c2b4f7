"""One step of the model, as every rank sees it."""

from dataclasses import dataclass
from typing import Literal

Phase = Literal["prompt", "decode"]


@dataclass(frozen=True)
class Step:
    """prompt: rows of one slot at positions first, first + 1, ... decode: one row a slot.

    `slots` and `positions` hold one entry (prompt) or one a row (decode). `token_ids` is filled on
    every rank, though only the embedding's home reads it. `pages` holds (slot, logical page, page
    id) for each page that this step is first to touch, as the one allocator gave it.
    `wants_logits`: the head computes logits of the last prompt row, or of every decode row.
    """

    phase: Phase
    slots: tuple[int, ...]
    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    pages: tuple[tuple[int, int, int], ...] = ()
    wants_logits: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.token_ids)
