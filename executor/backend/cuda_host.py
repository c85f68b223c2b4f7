"""The CUDA cards of this machine, as the driver's management library tells. No torch, no context.

That library lists every card of the machine, by bus address. CUDA lists those that
CUDA_VISIBLE_DEVICES leaves, in an order of its own: so cards are known by uuid here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plancc.executor.machine import Card, Look
from plancc.ir.plan import PlanDevice
from plancc.ir.units import format_bytes

VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class Cards:
    """In the driver's order. `reason` says why there are none, where there are none."""

    cards: tuple[Card, ...]
    reason: str = ""


def find_cards() -> Cards:
    """Every card that answers, and what is free on it now."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Cards((), str(error))
    try:
        numbers = range(pynvml.nvmlDeviceGetCount())
        found = tuple(card for number in numbers if (card := _card(pynvml, number)))
    except pynvml.NVMLError as error:
        return Cards((), str(error))
    finally:
        pynvml.nvmlShutdown()
    return Cards(found, "" if found else "the driver tells of no card")


def _card(nvml: Any, number: int) -> Card | None:
    """None for a card that is lost, or that this user may not ask."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return Card(number, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle),
                    int(memory.total), int(memory.free))  # fmt: skip
    except nvml.NVMLError:
        return None


def visible_cards(cards: Sequence[Card], environment: Mapping[str, str]) -> tuple[Card, ...]:
    """Those that a process of this environment can open, as CUDA reads it: up to the first word
    that names none.

    All, where words are numbers of an order that cannot be known from here: CUDA's own puts the
    fastest of unlike cards first.
    """
    if VISIBLE not in environment:
        return tuple(cards)
    words = [word.strip() for word in environment[VISIBLE].split(",")]
    is_ordered = environment.get(_ORDER) == "PCI_BUS_ID" or len({c.model for c in cards}) < 2
    found: list[Card] = []
    for word in words:
        if word.isdigit() and not is_ordered:
            return tuple(cards)
        card = _named(word, cards)
        if card is None or card in found:
            break
        found.append(card)
    return tuple(found)


def _named(word: str, cards: Sequence[Card]) -> Card | None:
    """By place in the list, or by the beginning of a uuid that only one card has."""
    if word.isdigit():
        return cards[int(word)] if int(word) < len(cards) else None
    found = [card for card in cards if word.startswith("GPU-") and card.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


class CudaHost:
    """KindHost of CUDA cards. `find` is asked anew each time: free bytes change."""

    def __init__(self, find: Callable[[], Cards] = find_cards) -> None:
        self._find = find

    def host_bytes(self, device: PlanDevice) -> int:
        """Nothing of a ledger lies in the host's memory."""
        return 0

    def free_bytes(self, uuid: str | None) -> int | None:
        """On the card now; of the only card where no uuid is given."""
        cards = self._find().cards
        mine = [card for card in cards if uuid in (None, card.uuid)]
        return mine[0].free_bytes if len(mine) == 1 else None

    def look(self, devices: Sequence[PlanDevice], environment: Mapping[str, str]) -> Look:
        """Is each device's card here, to be seen, and has it room for the ledger?"""
        found = self._find()
        visible = visible_cards(found.cards, environment)
        problems, notes = _shared(devices), []
        for device in devices:
            card = _card_of(device, found, visible, environment)
            if isinstance(card, str):
                problems.append(card)
            elif device.ledger.total > card.free_bytes:
                problems.append(_too_full(device, card))
            else:
                notes.append(f"{device.name} is card {card.number}, {card.model} ({card.uuid}): "
                             f"{format_bytes(card.free_bytes)} free, the plan fills "
                             f"{format_bytes(device.ledger.total)}")  # fmt: skip
        return Look(tuple(problems), tuple(notes))


def _card_of(
    device: PlanDevice, found: Cards, visible: Sequence[Card], environment: Mapping[str, str]
) -> Card | str:
    """The device's card, or why it cannot be had."""
    name, uuid, hint = device.name, device.uuid, _hint(found, visible, environment)
    if uuid is None:
        if len(visible) == 1:
            return visible[0]
        if not visible:
            return f"device {name}: the plan wants a {device.kind} card, found {hint}"
        return (f"device {name}: the plan gives no uuid, found {len(visible)} cards: {hint}; "
                f"measure them with planprobe and compile again")  # fmt: skip
    card = next((card for card in found.cards if card.uuid == uuid), None)
    if card is None:
        return f"device {name}: the plan wants card {uuid}, found {hint}"
    if card not in visible:
        return (f"device {name}: the plan wants card {uuid}, which is card {card.number} here but "
                f"hidden by {VISIBLE}={environment[VISIBLE]}: unset it or add {uuid}")  # fmt: skip
    return card


def _hint(found: Cards, visible: Sequence[Card], environment: Mapping[str, str]) -> str:
    if not found.cards:
        return f"none here ({found.reason})"
    if not visible:
        return f"none, since {VISIBLE}={environment[VISIBLE]!r} hides all {len(found.cards)} here"
    return ", ".join(f"{card.uuid} ({card.model})" for card in visible)


def _shared(devices: Sequence[PlanDevice]) -> list[str]:
    """Each ledger was made for a card of its own."""
    problems = []
    for uuid, count in Counter(device.uuid for device in devices).items():
        if count > 1:
            names = " and ".join(device.name for device in devices if device.uuid == uuid)
            what = f"one uuid, {uuid}" if uuid else "no uuid"
            problems.append(f"devices {names}: the plan gives them {what}: expected a card each")
    return problems


def _too_full(device: PlanDevice, card: Card) -> str:
    needed, free = device.ledger.total, card.free_bytes
    return (f"device {device.name} ({card.uuid}): the plan fills {format_bytes(needed)}, free are "
            f"{format_bytes(free)}: {format_bytes(needed - free)} short")  # fmt: skip
