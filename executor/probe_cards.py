"""Which of this machine's cards are measured: all, none, or those named."""

from collections.abc import Mapping, Sequence

from plancc.executor.backends import PROBES, probe_of
from plancc.executor.machine import Card
from plancc.executor.probe_kinds import MIB, DeclaredDevice
from plancc.ir.errors import BadInput

RESERVE_BYTES = 256 * MIB  # of a card that draws no desktop; a file may say otherwise

_Found = tuple[str, Card]


def declare_cards(asked: str | None, environment: Mapping[str, str]) -> tuple[DeclaredDevice, ...]:
    """gpuN for the card of number N, in the order asked for, else in the driver's.

    asked: all, none, or numbers and beginnings of uuids with commas; None is all. Raises BadInput
    for what no card that can be opened here is called.
    """
    words = (asked or "all").replace(",", " ").split()
    if words == ["none"]:
        return ()
    found = [(kind, card) for kind in sorted(PROBES) for card in probe_of(kind).cards(environment)]
    chosen = found if words == ["all"] else [_named(word, found) for word in words]
    for kind, card in chosen:
        if chosen.count((kind, card)) > 1:
            raise BadInput(f"--cards: expected each card once, found {card.uuid} twice")
    return tuple(_declared(kind, card) for kind, card in chosen)


def _named(word: str, found: Sequence[_Found]) -> _Found:
    matching = [row for row in found
                if (word == str(row[1].number) if word.isdigit()
                    else row[1].uuid.startswith(word))]  # fmt: skip
    if len(matching) == 1:
        return matching[0]
    here = ", ".join(f"{card.number} ({card.uuid})" for _, card in found) or "none"
    raise BadInput(f"--cards: expected all, none or one of the cards that this process can open: "
                   f"{here}; found {word!r}")  # fmt: skip


def _declared(kind: str, card: Card) -> DeclaredDevice:
    """In whole MiB."""
    total, free = (size // MIB * MIB for size in (card.total_bytes, card.free_bytes))
    return DeclaredDevice(f"gpu{card.number}", kind, card.uuid, total, free, None, RESERVE_BYTES)
