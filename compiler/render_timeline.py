"""One decode step as a picture: a row a device, stages as bars in ms, hops, and memory beside."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from plancc.compiler.explain import Explanation
from plancc.compiler.explain_beats import Beat
from plancc.compiler.explain_binding import Binding
from plancc.compiler.render_bars import (
    COMPUTE,
    EXCHANGE,
    FREE,
    HOP,
    HOP_END,
    PARTS,
    WAIT,
    Ink,
    apportion,
    bar_bytes,
    bar_cells,
    inks_used,
)
from plancc.ir.plan import Plan
from plancc.ir.units import format_ns

Piece = tuple[str, int]  # (what, stage)
MEMORY_CELLS = 12
LONGEST_NAME = 20


def timeline(plan: Plan, answer: Explanation, console: Console) -> list[Text]:
    """An axis, a row for each device in stage order, and what the signs mean."""
    plain = not console.encoding.lower().startswith("utf")
    names = min(LONGEST_NAME, max(len(binding.device) for binding in answer.bindings))
    times = max(len(_busy(answer, binding)) for binding in answer.bindings)
    beside = 2 + times + 2 + MEMORY_CELLS + len(" 100 %")
    width = max(16, min(console.width, 130) - names - 2 - beside)
    cells = _cells(answer.beats, width)
    head = Text(" " * (names + 2), "dim").append(_axis(plan.predicted.decode.step_ns, width))
    head.append("  " + "busy".rjust(times) + "  " + "memory", "dim")
    rows = [head]
    for binding in answer.bindings:
        row = _name(binding.device, names).append("  ")
        row.append_text(_bar(answer.beats, cells, binding.device, plain))
        row.append("  " + _busy(answer, binding).rjust(times) + "  ")
        rows.append(row.append_text(_memory(plan, binding, plain)))
    return [*rows, Text(), *_legend(plan, answer, plain)]


def _name(device: str, width: int) -> Text:
    """The end of a long name: it tells devices of one host apart."""
    return Text(device.ljust(width) if len(device) <= width else ".." + device[2 - width :])


def _busy(answer: Explanation, binding: Binding) -> str:
    return format_ns(sum(answer.beats[number].busy_ns for number in binding.stages))


def _cells(beats: Sequence[Beat], width: int) -> dict[Piece, int]:
    """Cells of every piece of the step, in order; what takes any time at all is seen."""
    sizes: dict[Piece, int] = {}
    for beat in beats:
        sizes["compute", beat.stage] = beat.compute_ns
        sizes["exchange", beat.stage] = beat.exchange_ns
        sizes["hop", beat.stage] = beat.hop_ns
    return apportion(sizes, width) if any(sizes.values()) else dict.fromkeys(sizes, 0)


def _axis(step_ns: int, width: int) -> Text:
    """0, and the whole step at its end; the middle too where there is room."""
    end, middle = format_ns(step_ns), format_ns(step_ns // 2)
    line = list("0".ljust(width))
    line[width - len(end) :] = end
    start = width // 2 - len(middle) // 2
    if start > 4 and start + len(middle) + 4 < width - len(end):
        line[start : start + len(middle)] = middle
    return Text("".join(line), "dim")


def _bar(beats: Sequence[Beat], cells: dict[Piece, int], device: str, plain: bool) -> Text:
    """The whole step on one device: it works, exchanges and sends, or waits."""
    row = Text()
    for beat in beats:
        compute, exchange = cells["compute", beat.stage], cells["exchange", beat.stage]
        hop, mine = cells["hop", beat.stage], device in beat.devices
        if not mine:
            row.append(WAIT.glyph * (compute + exchange + hop))
            continue
        for ink in _woven(compute, exchange):
            row.append(ink.ascii if plain else ink.glyph, ink.style)
        arrow = [HOP] * (hop - 1) + [HOP_END] if hop else []
        for ink in arrow:
            row.append(ink.ascii if plain else ink.glyph, ink.style)
    return row


def _woven(compute: int, exchange: int) -> list[Ink]:
    """Exchanges evenly between computing: there is one a layer."""
    total = compute + exchange
    return [EXCHANGE if (i + 1) * exchange // total > i * exchange // total else COMPUTE
            for i in range(total)]  # fmt: skip


def _memory(plan: Plan, binding: Binding, plain: bool) -> Text:
    """Every device on a scale of its own: how full it is, not how large."""
    device = plan.device(binding.device)
    cells = bar_cells(device, max(1, device.budget_bytes), MEMORY_CELLS)
    row = Text()
    for ink in (*PARTS, FREE):
        row.append((ink.ascii if plain else ink.glyph) * cells[ink.name], ink.style)
    return row.append(f" {100 * binding.used:3.0f} %")


def _legend(plan: Plan, answer: Explanation, plain: bool) -> list[Text]:
    exchanged = any(beat.exchange_ns for beat in answer.beats)
    hopped = any(beat.hop_ns for beat in answer.beats)
    steps = [COMPUTE, *([EXCHANGE] if exchanged else []), *([HOP_END] if hopped else [])]
    parts = [*inks_used([bar_bytes(device) for device in plan.devices]), FREE]
    return [_signs("step    ", steps, plain), _signs("memory  ", parts, plain)]


def _signs(what: str, inks: Sequence[Ink], plain: bool) -> Text:
    line = Text(what, "dim")
    for ink in inks:
        line.append(ink.ascii if plain else ink.glyph, ink.style).append(f" {ink.name}  ", "dim")
    line.rstrip()
    return line
