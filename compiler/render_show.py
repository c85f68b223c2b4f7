"""`plancc show`: one plan on one screen, readable at 80 columns and without colour."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from plancc.compiler.pins import is_pin_row
from plancc.compiler.render_bars import FREE, PARTS, bar_bytes, bar_cells, inks_used
from plancc.compiler.summary import (
    count_words,
    has_idle_rows,
    layer_range,
    proof_words,
    value_words,
)
from plancc.ir.plan import Alternative, Plan, PlanDevice, Stage, StageTime
from plancc.ir.units import format_bytes, format_ns

_COLUMNS = {"hop_buffers": "hops", "workspace": "work", "overhead": "over"}


def show_plan(plan: Plan, console: Console) -> None:
    """Print header, devices, what fills them, stages, prediction, proof and what lost."""
    parts = (
        _header(plan),
        section_title("Devices", _unit(plan)[0]),
        _devices(plan, console),
        Text(),
        _bars(plan, console),
        section_title("Stages", f"decode at context {plan.runtime.context}, one token"),
        _stages(plan),
        section_title("Predicted"),
        _predicted(plan),
        *_why_not(plan),
    )
    console.print(Group(*parts))


def section_title(name: str, note: str = "") -> Text:
    """An empty line, then a title with a word on what it counts."""
    return Text.assemble("\n", (name, "bold"), (f"  {note}" if note else "", "dim"))


def _header(plan: Plan) -> Text:
    run = plan.runtime
    count = len({rank.device for stage in plan.stages for rank in stage.ranks})
    kv = "" if run.kv_dtype == run.dtype else f", kv {run.kv_dtype}"
    idle = " (longer than the context)" if has_idle_rows(plan) else ""
    return Text.assemble(
        (plan.model.name, "bold"),
        f" on {plan.inputs.topology.name}: {count_words(len(plan.stages), 'stage')} on "
        f"{count_words(count, 'device')}, plan {plan.digest[:12]}\n",
        f"context {run.context}, {count_words(run.slots, 'slot')}, "
        f"prefill chunk {run.prefill_chunk}{idle}, {run.dtype}{kv}",
    )


def _devices(plan: Plan, console: Console) -> Table:
    """One row a device; a part that no device has gets no column. Narrow where it must be."""
    wide = _device_table(plan, gap=2)
    return wide if console.measure(wide).maximum <= console.width else _device_table(plan, gap=1)


def _device_table(plan: Plan, gap: int) -> Table:
    rows = [device.ledger.parts() for device in plan.devices]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    table = plain_table(gap)
    table.add_column("device", overflow="fold")
    for name in (*names, "total", "budget", "free"):
        table.add_column(_COLUMNS.get(name, name), justify="right", no_wrap=True)
    factor = _unit(plan)[1]
    for device, row in zip(plan.devices, rows, strict=True):
        ledger = device.ledger
        sums = (ledger.total, device.budget_bytes, ledger.free_after)
        sizes = (*(row[name] for name in names), *sums)
        table.add_row(device.name, *(_amount(size / factor) for size in sizes))
    return table


def plain_table(gap: int = 2) -> Table:
    """Columns parted by `gap`, without lines."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def _unit(plan: Plan) -> tuple[str, int]:
    """One unit for the whole table: that of the largest budget."""
    largest = max(device.budget_bytes for device in plan.devices)
    return ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)


def _amount(amount: float) -> str:
    """Two places; what is there at all is never shown as nothing."""
    return "-" if amount == 0 else "<0.01" if 0 < amount < 0.005 else f"{amount:.2f}"


def _bars(plan: Plan, console: Console) -> RenderableType:
    names = max(len(device.name) for device in plan.devices)
    width = max(10, min(console.width, 100) - names - len("    100.0 % of 1000.00 GiB"))
    widest = max(device.budget_bytes for device in plan.devices)
    plain = not console.encoding.lower().startswith("utf")
    lines = [_bar(device, names, widest, width, plain) for device in plan.devices]
    legend = Text(" " * (names + 2))
    for ink in (*inks_used([bar_bytes(device) for device in plan.devices]), FREE):
        legend.append(ink.ascii if plain else ink.glyph, ink.style)
        legend.append(f" {ink.name}  ", "dim")
    return Group(*lines, legend)


def _bar(device: PlanDevice, names: int, widest: int, width: int, plain: bool) -> Text:
    cells = bar_cells(device, widest, width)
    line = Text(f"{device.name.ljust(names)}  ")
    for ink in (*PARTS, FREE):
        line.append((ink.ascii if plain else ink.glyph) * cells[ink.name], ink.style)
    used = 100 * device.ledger.total / max(1, device.budget_bytes)
    line.append(f"  {used:.1f} % of {format_bytes(device.budget_bytes)}")
    return line


def _stages(plan: Plan) -> Table:
    table = plain_table()
    for name in ("stage", "device", "layers", "blocks"):
        table.add_column(name, overflow="fold")
    table.add_column("compute", justify="right", no_wrap=True)
    table.add_column("then", overflow="fold")
    times = plan.predicted.decode.stages
    for index, stage in enumerate(plan.stages):
        first, end = stage.layers
        time = times[index] if index < len(times) else None
        table.add_row(
            str(index),
            _ranks(stage),
            f"{layer_range(stage.layers)} ({end - first})",
            ", ".join(stage.blocks) or "-",
            format_ns(time.compute_ns) if time else "-",
            "\n".join(filter(None, (_exchanges(time), _hop(plan, index, time)))),
        )
    return table


def _ranks(stage: Stage) -> str:
    """The device; of a group each rank, its tiles, and who has the mixer, a line each."""
    if len(stage.ranks) == 1:
        return stage.ranks[0].device
    tiles = stage.ranks[-1].mlp_tiles[1]
    lines = [f"{rank.device} {rank.mlp_tiles[1] - rank.mlp_tiles[0]}/{tiles} of MLPs"
             for rank in stage.ranks]  # fmt: skip
    whose = stage.ranks[0].device if stage.mixer == "owned" else "each"
    return "\n".join((*lines, f"mixer and KV: {whose}"))


def _exchanges(time: StageTime | None) -> str:
    return f"exchanges {format_ns(time.exchange_ns)}" if time and time.exchange_ns else ""


def _hop(plan: Plan, index: int, time: StageTime | None) -> str:
    """Where the rows go next; from the last stage the row or the token goes back."""
    if time is None or time.hop_ns == 0:
        return ""
    last = index + 1 == len(plan.stages)
    target = plan.stages[0 if last else index + 1].ranks[0].device
    what = "token" if last and "head" not in plan.stages[0].blocks else "row"
    return f"{what} to {target} {format_ns(time.hop_ns)}"


def _predicted(plan: Plan) -> Text:
    decode, prefill = plan.predicted.decode, plan.predicted.prefill
    lines = [f"decode   {format_ns(decode.step_ns)} a token, {decode.tokens_per_s:.1f} tok/s"]
    if prefill is None:
        lines.append("prefill  not known: the topology gives no matmul rate")
    else:
        lines.append(
            f"prefill  {format_ns(prefill.total_ns)} for {prefill.prompt} tokens in "
            f"{count_words(prefill.chunks, 'chunk')}, {prefill.tokens_per_s:.0f} tok/s"
        )
    proof = plan.provenance.solver
    words = f"proof    {proof_words(plan)}: {value_words(plan, proof.value)}"
    if proof.value != proof.best:
        words += f", of all shapes {_short_value(plan, proof.best)}"
    lines.append(f"{words} ({proof.name} {proof.version})")
    return Text("\n".join(lines))


def _short_value(plan: Plan, value: int) -> str:
    return f"{value} tokens" if plan.ask.objective == "context" else format_ns(value)


def _why_not(plan: Plan) -> Iterator[RenderableType]:
    lost = [item for item in plan.alternatives if item.verdict != "chosen"]
    if not lost:
        return
    yield section_title("Why not")
    table = plain_table()
    table.add_column("shape", overflow="fold")
    table.add_column("verdict", overflow="fold")
    for item in lost:
        table.add_row(item.shape, lost_words(plan, item))
    yield table


def lost_words(plan: Plan, item: Alternative) -> str:
    """Why a shape lost: how much slower, how many bytes short, or what forbids it."""
    words = str(item.verdict)
    if item.device is not None and item.short_bytes is None:
        words += f" ({item.device})"
    if item.short_bytes is not None:
        where = f"{item.device} is " if item.device else ""
        words += f": {where}{format_bytes(item.short_bytes)} short"
    elif item.value is not None and is_pin_row(item):
        words += f": {_short_value(plan, item.value)}"
    elif item.value is not None:
        words += f": {format_ns(item.value)}"  # at the largest context as well
    return f"{words}; {item.note}" if item.note else words


def delta_words(delta: int, base: int, is_narrow: bool = False) -> str:
    """'+0.41 ms (+2.3 %)'; narrow, the share alone where it is large enough to be one."""
    if delta == 0:
        return "0"
    time = f"{'+' if delta > 0 else '-'}{format_ns(abs(delta))}"
    share = f"{100 * delta / max(1, base):+.1f} %"
    if abs(delta) < 0.0005 * base:
        return time if is_narrow else f"{time} (< 0.1 %)"
    return share if is_narrow else f"{time} ({share})"
