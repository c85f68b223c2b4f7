"""`plancc explain --measured`: what was predicted and what was measured, line by line."""

from collections.abc import Callable, Iterable
from io import StringIO

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from plancc.compiler.explain_furthest import furthest_words
from plancc.compiler.explain_measured import Figure, figures_of
from plancc.compiler.measured_report import MeasuredReport
from plancc.compiler.render_explain import plan_header
from plancc.compiler.render_show import plain_table, section_title
from plancc.ir.plan import Plan
from plancc.ir.units import format_bytes, format_ns

_TELLING = 0.001  # of a device's planned bytes
_PARTS = ("compute", "exchange", "hop", "rest", "clocks")
_OF_MEMORY = ("memory", "column")


def show_measured(plan: Plan, report: MeasuredReport, console: Console) -> None:
    """Print the comparison, then in one sentence what is furthest off."""
    figures = figures_of(plan, report)
    sizes = [item for item in figures if item.kind == "memory" or
             (item.kind == "column" and item.weight >= _TELLING)]  # fmt: skip
    times = [item for item in figures if item.kind not in _OF_MEMORY]
    runs = "1 run" if report.repeat == 1 else f"medians of {report.repeat} runs"
    console.print(
        Group(
            plan_header(plan),
            section_title("Measured against predicted", runs),
            _times(times),
            section_title(
                "Memory", "without what an opened device itself takes; columns that differ"
            ),
            _sizes(sizes),
            section_title("What is furthest off"),
            _words(plan, report, figures),
        )
    )


def measured_html(plan: Plan, report: MeasuredReport, width: int = 120) -> str:
    """The same screen as one HTML page that needs no other file."""
    from rich.terminal_theme import MONOKAI

    console = Console(record=True, width=width, file=StringIO(), force_terminal=True,
                      highlight=False)  # fmt: skip
    show_measured(plan, report, console)
    return console.export_html(theme=MONOKAI, inline_styles=True)


def _times(figures: Iterable[Figure]) -> Table:
    table = _table("time", "of the step")
    for item in figures:
        is_part = item.kind in _PARTS and item.difference is not None
        share = _percent((item.difference or 0) / item.whole) if is_part else ""
        predicted = "" if item.kind in ("rest", "clocks") else _shown(item.predicted, format_ns)
        table.add_row(item.what, _shown(item.measured, format_ns), predicted, _percent(item.off),
                      share)  # fmt: skip
    return table


def _sizes(figures: Iterable[Figure]) -> Table:
    table = _table("device")
    for item in figures:
        name = f"  {item.what.partition(': ')[2]}" if item.kind == "column" else item.what
        table.add_row(name, _shown(item.measured, format_bytes),
                      _shown(item.predicted, format_bytes), _percent(item.off))  # fmt: skip
    return table


def _table(first: str, *more: str) -> Table:
    table = plain_table()
    table.add_column(first, overflow="fold")
    for name in ("measured", "predicted", "off", *more):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _shown(amount: int | None, show: Callable[[int], str]) -> str:
    return "" if amount is None else show(amount)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f} %"


def _words(plan: Plan, report: MeasuredReport, figures: tuple[Figure, ...]) -> Table:
    table = plain_table()
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("furthest", Text(furthest_words(plan, report, figures)))
    first, last = report.decode.context
    words = f"measured at {first} to {last} tokens, predicted at {plan.runtime.context}"
    if last < 0.9 * plan.runtime.context:
        words += f": a plan compiled with --context {last} is to be compared"
    table.add_row("context", words)
    predicted = plan.predicted.prefill
    if predicted and predicted.prompt != report.prefill.tokens:
        table.add_row("prompt", f"predicted for {predicted.prompt} tokens: not compared")
    if machine := report.machine:
        devices = "".join(f"{name}: {words}; " for name, words in machine.devices.items())
        table.add_row("machine", Text(f"{devices}{machine.processor}; torch {machine.torch}, "
                                      f"plancc {machine.plancc}"))  # fmt: skip
    return table
