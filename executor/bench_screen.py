"""What --bench shows: measured beside predicted, speed and memory."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from plancc.ir.units import format_bytes

Row = tuple[str, float | None, float | None]  # what, measured, predicted
_NOT_IN_ALLOCATOR = "overhead"


def show_report(report: dict[str, Any], console: Console) -> None:
    """Print the tables of speed and memory, and what they were measured on."""
    console.print(_speed_table(report), _memory_table(report))
    console.print(_machine_words(report), markup=False)


def _speed_table(report: dict[str, Any]) -> Table:
    table = Table("", title=f"{report['model']}: speed", box=None)
    for name in ("measured", "predicted", "off"):
        table.add_column(name, justify="right", no_wrap=True)
    for unit, rows in (
        (_ms, _step_rows(report)),
        (_rate, _rate_rows(report)),
        (_ms, _stage_rows(report)),
        (_us, _hop_rows(report)),
        (_gb_s, [("load", report["load"]["gb_s"], None)]),
    ):
        for what, measured, predicted in rows:
            table.add_row(what, *(unit(value) for value in (measured, predicted)),
                          _off(measured, predicted))  # fmt: skip
    return table


def _step_rows(report: dict[str, Any]) -> Iterator[Row]:
    decode = report["decode"]
    yield "decode step, p50", decode["p50_ms"], decode["predicted_ms"]
    yield "decode step, p95", decode["p95_ms"], None


def _rate_rows(report: dict[str, Any]) -> Iterator[Row]:
    decode, prefill = report["decode"], report["prefill"]
    yield "decode", decode["tokens_per_s"], decode["predicted_tokens_per_s"]
    predicted = prefill["predicted"]
    is_same = predicted and predicted["tokens"] == prefill["tokens"]
    rate = predicted["tokens_per_s"] if is_same else None
    yield f"prompt of {prefill['tokens']}", prefill["tokens_per_s"], rate
    if predicted and not is_same:
        yield f"prompt of {predicted['tokens']}", None, predicted["tokens_per_s"]


def _stage_rows(report: dict[str, Any]) -> Iterator[Row]:
    for row in report["stages"]:
        yield (f"stage {row['stage']} on {row['device']}, a step", row["compute_ms"],
               row["predicted_compute_ms"])  # fmt: skip
        if row["predicted_exchange_ms"]:
            yield (f"exchanges of rank {row['rank']}, a step", row["exchange_ms"],
                   row["predicted_exchange_ms"])  # fmt: skip


def _hop_rows(report: dict[str, Any]) -> Iterator[Row]:
    for hop in report["hops"]:
        if hop["predicted_us"] is not None:
            yield (f"hop {hop['from']} to {hop['to']}, median", hop["median_us"],
                   hop["predicted_us"])  # fmt: skip


def _told(form: str) -> Callable[[float | None], str]:
    return lambda value: "" if value is None else form.format(value)


_ms, _us = _told("{:.2f} ms"), _told("{:.1f} us")
_rate, _gb_s = _told("{:.1f} tok/s"), _told("{:.2f} GB/s")


def _off(measured: float | None, predicted: float | None) -> str:
    if measured is None or not predicted:
        return ""
    return f"{100 * (measured / predicted - 1):+.1f} %"


def _memory_table(report: dict[str, Any]) -> Table:
    table = Table("device", "", title="memory", box=None)
    for name in ("allocated", "planned", "off"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in report["devices"]:
        for column, planned in row["planned"].items():
            allocated = row["allocated"].get(column)
            if planned or allocated:
                table.add_row(row["device"], column, *_sizes(allocated, planned))
        if row["peak_bytes"] is not None:
            within = row["planned"]["total"] - row["planned"][_NOT_IN_ALLOCATOR]
            table.add_row(row["device"], "allocator's peak", *_sizes(row["peak_bytes"], within))
    return table


def _sizes(found: int | None, planned: int) -> tuple[str, str, str]:
    told = "" if found is None else format_bytes(found)
    return told, format_bytes(planned), _off(found, planned)


def _machine_words(report: dict[str, Any]) -> str:
    machine, decode = report["machine"], report["decode"]
    first, last = decode["context"]
    devices = "".join(f"{name}: {words}; " for name, words in machine["devices"].items())
    runs = f"{report['repeat']} runs, medians" if report["repeat"] > 1 else "1 run"
    return (
        f"{runs}; decode at {first} to {last} tokens of context, predicted for "
        f"{decode['predicted_context']}; parts of a step from {report['timed']['steps']} steps\n"
        f"{devices}{machine['processor']}, {machine['cores']} cores; torch {machine['torch']}, "
        f"plancc {machine['plancc']}"
    )
