"""Flags of an ask that narrow the choice of shapes, and the row of a plan that says their cost."""

from plancc.ir.ask import Ask
from plancc.ir.plan import Alternative, Plan

PREFIX = "without "
_PINS = ("devices", "max_devices", "stage_layers", "tp", "pin", "head")
UNPINNED = {name: Ask.model_fields[name].default for name in _PINS}


def pinned(ask: Ask) -> tuple[str, ...]:
    """Fields of the ask that pin something."""
    return tuple(name for name in _PINS if getattr(ask, name) != UNPINNED[name])


def pins_of(ask: Ask) -> tuple[str, ...]:
    """The flags that pin something, by name."""
    return tuple(flag(name) for name in pinned(ask))


def pins_said(ask: Ask, flags: tuple[str, ...] | None = None) -> str:
    """The same flags, or some of them, as they may be typed: '--stage-layers 30,34 --tp off'."""
    return " ".join(_said(name, getattr(ask, name)) for name in pinned(ask)
                    if flags is None or flag(name) in flags)  # fmt: skip


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _said(name: str, value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{flag(name)} {block}={device}" for block, device in value.items())
    words = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{flag(name)} {words}"


def is_pin_row(row: Alternative) -> bool:
    return row.shape.startswith(PREFIX + "--")


def row_of_pins(plan: Plan) -> Alternative | None:
    """What the choice would be without the pins; None where nothing was pinned, or not solved."""
    return next((row for row in plan.alternatives if is_pin_row(row)), None)


def flags_of(row: Alternative) -> tuple[str, ...]:
    """The flags that such a row does without."""
    return tuple(row.shape.removeprefix(PREFIX).split(", "))
