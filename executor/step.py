"""One step of the model, as every rank sees it."""

from dataclasses import dataclass
from typing import Literal, Protocol

Phase = Literal["prompt", "decode"]


class Drawn(Protocol):
    """Tokens that a device drew, one a row of a decode step. No torch: the host sees numbers."""

    def ids(self) -> tuple[int, ...]:
        """Waits until they are here. -1 for a row whose logits were not all finite."""


@dataclass(frozen=True)
class Step:
    """prompt: rows of one slot at positions first, first + 1, ... decode: one row a slot.

    `slots` and `positions` hold one entry (prompt) or one a row (decode). `token_ids` is filled on
    every rank, though only the embedding's home reads it; where `fed` stands for the tokens it is
    empty. `pages` holds (slot, logical page, page
    id) for each page that this step is first to touch, as the one allocator gave it.
    `wants_logits`: the head computes logits of the last prompt row, or of every decode row.
    `is_timed`: ranks take stamps even where that costs time.
    """

    phase: Phase
    slots: tuple[int, ...]
    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    pages: tuple[tuple[int, int, int], ...] = ()
    wants_logits: bool = True
    fed: Drawn | None = None
    is_timed: bool = False

    @property
    def num_rows(self) -> int:
        return len(self.token_ids) if self.fed is None else len(self.slots)

    def ids(self) -> tuple[int, ...]:
        """The rows' tokens; waits for those that a device drew."""
        return self.token_ids if self.fed is None else self.fed.ids()
