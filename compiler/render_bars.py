"""Horizontal bars: what fills each device, and what is free, on one scale for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from plancc.ir.plan import PlanDevice

K = TypeVar("K")


@dataclass(frozen=True)
class Ink:
    """How a part is drawn: by shape, since colour may be gone, and by colour."""

    name: str
    glyph: str
    ascii: str
    style: str


PARTS = (
    Ink("weights", "█", "W", "blue"),
    Ink("kv", "▓", "K", "magenta"),
    Ink("state", "▚", "S", "cyan"),
    Ink("blocks", "▒", "B", "green"),
    Ink("buffers", "▞", "b", "yellow"),
    Ink("overhead", "░", "o", "red"),
)
FREE = Ink("free", "·", ".", "dim")

# A step in time. What a TP group exchanges lies between its layers, so it is drawn in between.
COMPUTE = Ink("compute", "█", "#", "cyan")
EXCHANGE = Ink("exchange", "▒", "=", "red")
HOP = Ink("hop", "─", "-", "yellow")
HOP_END = Ink("hop", "▸", ">", "yellow")
WAIT = Ink("wait", " ", " ", "")


def bar_bytes(device: PlanDevice) -> dict[str, int]:
    """Bytes by what is drawn: hop buffers and workspace are one part."""
    parts = device.ledger.parts()
    parts["buffers"] = parts.pop("hop_buffers") + parts.pop("workspace")
    return {ink.name: parts[ink.name] for ink in PARTS}


def bar_cells(device: PlanDevice, widest_bytes: int, width: int) -> dict[str, int]:
    """Cells of each part and of what is free; a budget of `widest_bytes` fills `width` cells.

    Parts are rounded by largest remainder, so a bar is as long as its budget says; a part that is
    there at all gets a cell where a longer one can spare it.
    """
    sizes = {**bar_bytes(device), FREE.name: max(0, device.ledger.free_after)}
    sizes[FREE.name] += not any(sizes.values())  # an empty device is all free
    return apportion(sizes, max(1, round(width * sum(sizes.values()) / max(1, widest_bytes))))


def apportion(sizes: Mapping[K, int], length: int) -> dict[K, int]:
    """`length` cells by largest remainder; a size gets one at least where one can be spared."""
    total = sum(sizes.values())
    exact = {name: length * size / total for name, size in sizes.items()}
    cells = {name: int(share) for name, share in exact.items()}
    rest = sorted(exact, key=lambda name: cells[name] - exact[name])
    for name in rest[: length - sum(cells.values())]:
        cells[name] += 1
    for name, size in sizes.items():
        longest = max(cells, key=lambda other: cells[other])
        if size and not cells[name] and cells[longest] > 1:
            cells[name], cells[longest] = 1, cells[longest] - 1
    return cells


def inks_used(sizes: list[Mapping[str, int]]) -> tuple[Ink, ...]:
    """The legend: only what is drawn."""
    return tuple(ink for ink in PARTS if any(size[ink.name] for size in sizes))
