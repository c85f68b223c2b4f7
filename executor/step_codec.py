"""What the driver tells the other ranks, as whole numbers: a fixed header, and rarely a body.

Header, int64 words:

    0 kind (0 prompt, 1 decode, 2 report)   1 rows   2 wants logits   3 pages   4 slot
    5 first position   6 first token id   7, 8, 9 the first page   10 words of the body
    11 is timed

A decode step of one row that touches at most one new page is the header alone: one message a
token. Else the body holds token ids, then slots and positions where they are one a row (decode),
then the pages, three words each. A report holds its slot, its tokens (5) and its wants (2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plancc.executor.step import Step

HEADER_WORDS = 12
_PROMPT, _DECODE, _REPORT = 0, 1, 2


@dataclass(frozen=True)
class ReportAsk:
    """Not a step: every rank is to tell what it measured, and the KV digests of a slot if asked."""

    slot: int
    num_tokens: int
    wants_kv: bool


Message = Step | ReportAsk


def body_words_of(rows: int, pages: int) -> int:
    """The most words that the body of a step with so many rows and pages takes."""
    return 3 * rows + 3 * pages


def encode(message: Message) -> tuple[list[int], list[int]]:
    """Header and body words."""
    if isinstance(message, ReportAsk):
        header = [_REPORT, 0, int(message.wants_kv), 0, message.slot, message.num_tokens]
        return header + [0] * (HEADER_WORDS - len(header)), []
    pages, ids = message.pages, message.ids()
    first_page = pages[0] if pages else (0, 0, 0)
    body = [] if message.num_rows == 1 and len(pages) <= 1 else _body(message)
    header = [
        _PROMPT if message.phase == "prompt" else _DECODE,
        message.num_rows,
        int(message.wants_logits),
        len(pages),
        message.slots[0],
        message.positions[0],
        ids[0],
        *first_page,
        len(body),
        int(message.is_timed),
    ]
    return header, body


def body_words(header: Sequence[int]) -> int:
    return header[10]


def decode(header: Sequence[int], body: Sequence[int]) -> Message:
    """The inverse of `encode`."""
    kind, rows, wants, num_pages, slot, position, token = header[:7]
    if kind == _REPORT:
        return ReportAsk(slot, position, bool(wants))
    tokens: tuple[int, ...]
    slots: tuple[int, ...]
    positions: tuple[int, ...]
    tokens, slots, positions = (token,), (slot,), (position,)
    flat = header[7 : 7 + 3 * num_pages]
    if header[10]:
        rest = 3 if kind == _DECODE else 1
        tokens = tuple(body[:rows])
        slots = tuple(body[rows : 2 * rows]) if kind == _DECODE else (slot,)
        positions = tuple(body[2 * rows : 3 * rows]) if kind == _DECODE else (position,)
        flat = body[rest * rows :]
    return Step(
        phase="decode" if kind == _DECODE else "prompt",
        slots=slots,
        positions=positions,
        token_ids=tokens,
        pages=tuple((flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)),
        wants_logits=bool(wants),
        is_timed=bool(header[11]),
    )


def _body(step: Step) -> list[int]:
    per_row = [*step.slots, *step.positions] if step.phase == "decode" else []
    return [*step.ids(), *per_row, *(word for page in step.pages for word in page)]
