"""One model in many ways: shapes, transports, graphs or not, cards swapped, chunks. One answer?

What is compared is what `planrun --verify` compares: the digest of every step's logits, the tokens,
and the KV of each layer in the order of positions, wherever it lies.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plancc_random_run import digest_of

from plancc.executor.verify import Seen, first_difference
from plancc.ir.plan import Transport

CHUNKED = ("1", "2", "tp2u")
"""Whose prompts are cut in other ways too."""


@dataclass(frozen=True)
class Case:
    """A shape's word (plancc_card_shapes) and how it is run."""

    word: str
    chunk: int
    is_eager: bool = False
    transport: Transport = "p2p"
    is_swapped: bool = False

    def __str__(self) -> str:
        how = ["eager" if self.is_eager else "graphs", self.transport, f"chunks of {self.chunk}"]
        return ", ".join([self.word, *how, *(["last card first"] if self.is_swapped else [])])


class Run(Protocol):
    def see(self, prompt: int, tokens: int, *, wants_digests: bool = False) -> Seen: ...


@dataclass(frozen=True)
class Row:
    """What came of a case; `difference`: the first one from the first case, or why it failed."""

    case: str
    logits: str = ""
    kv: str = ""
    tokens: str = ""
    seconds: float = 0.0
    difference: str | None = None


def cases_of(
    words: Sequence[str], chunks: Sequence[int], *, num_cards: int, are_few: bool = False
) -> list[Case]:
    """The first is what all others are compared with. Few: every shape once, two staged."""
    chunk, *others = chunks
    found = [Case("1", chunk)]
    found += [Case(word, chunk, is_eager, transport)
              for word in words for transport in ("p2p", "staged") for is_eager in (False, True)
              if _is_asked(word, transport, is_eager=is_eager, are_few=are_few)]  # fmt: skip
    if num_cards > 1 and not are_few:
        found += [Case(word, chunk, is_swapped=True) for word in words]
    found += [Case(word, other) for other in others if not (are_few and other == 1)
              for word in words if word in CHUNKED[: 1 if are_few else None]]  # fmt: skip
    return list(dict.fromkeys(found))


def _is_asked(word: str, transport: str, *, is_eager: bool, are_few: bool) -> bool:
    """Nothing is carried from one device to itself."""
    if word == "1" and transport == "staged":
        return False
    return not are_few or not (is_eager or (transport == "staged" and word not in ("2", "tp2")))


def compare(
    cases: Iterable[Case], opened: Callable[[Case], Run], *, prompt: int, tokens: int
) -> Iterator[Row]:
    """A row a case, as it ends. A case that fails is told like one that differs."""
    first: tuple[Seen, ...] | None = None
    for case in cases:
        begin = time.monotonic()
        try:
            seen = _look(opened(case), prompt, tokens)
        except Exception as error:  # the other cases are worth knowing
            yield Row(str(case), difference=f"failed: {error!r}"[:400])
            continue
        first = first or seen
        difference = first_difference(first, seen)
        yield Row(str(case), *digests(seen), seconds=round(time.monotonic() - begin, 1),
                  difference=None if difference is None else str(difference))  # fmt: skip


def _look(run: Run, prompt: int, tokens: int) -> tuple[Seen, ...]:
    """Tokens that the host draws, with digests; then those that the device draws, ahead. Graphs of
    a prompt are made of another one before, whose last chunk has fewer rows in as many blocks."""
    for _ in range(2):
        run.see(prompt - 1, 2)
    return run.see(prompt, tokens, wants_digests=True), run.see(prompt, tokens)


def digests(seen: Sequence[Seen]) -> tuple[str, str, str]:
    """Of logits, of KV, of tokens."""
    logits = [row.logits_sha256 for one in seen for row in one.sampled if row.logits_sha256]
    kv = [one.kv[layer] for one in seen for layer in sorted(one.kv)]
    return digest_of(logits), digest_of(kv), digest_of([t for one in seen for t in one.tokens])


def first_of(model: str, rows: Sequence[Row]) -> str | None:
    """The first difference of a model's rows in words, if there is one."""
    for row in rows:
        if row.difference is not None:
            return f"{model}: {row.case}: {row.difference}"
    return None if rows else f"{model}: no case was run"


def difference_from(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Of one device's answers from those of an earlier run: lines that the benchmark printed."""
    if old["question"] != new["question"]:
        return f"an earlier run was asked {old['question']}, this one {new['question']}"
    for model, (row, *_) in new["models"].items():
        before = old["models"].get(model, [row])[0]
        for what in ("logits", "kv", "tokens"):
            if before[what] != row[what]:
                return f"{model}: {row['case']}: {what} {row[what]}, earlier {before[what]}"
    return None
