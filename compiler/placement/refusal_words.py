"""A refusal in words, from its report alone: JSON and text say the same."""

from collections.abc import Iterator
from typing import Any

from plancc.compiler.placement.decide import MOST_DP_SEATS
from plancc.ir.units import format_bytes

GROUP_WORDS = {
    "tried": "do not help either",
    "off": "were not tried: --tp off",
    "many": "are not searched over so many unlike devices: name up to "
    f"{MOST_DP_SEATS} with --devices",
    "uncut": "are no way out: no MLP of this model can be cut",
    "workload": "are no way out: --workload places pipelines only",
    "repeated": "are no way out: --devices names a device twice",
    "alone": "are no way out: there is only one device to use",
    "apart": "are no way out: no two of these devices may share one",
}


def refusal_text(report: dict[str, Any]) -> str:
    """What is asked and what lacks; device by device; the cause; and what would help."""
    slots = f"{report['slots']} slot" + ("s" if report["slots"] > 1 else "")
    lines = [
        f"{report['model']} does not fit at context {report['context']}, {slots}: short by "
        f"{_worst_words(report['devices'])}",
        *(_row_line(row) for row in report["devices"]),
        _fails_line(report),
        *_tp_lines(report),
    ]
    for flag in report["binding"]:
        lines.append(f"  without {flag} it fits")
    lines.append(f"  {_help_line(report['largest'], report['binding'])}")
    return "\n".join(lines)


def _worst_words(rows: list[dict[str, Any]]) -> str:
    """What the fullest device lacks, and its name where it is not the only one."""
    worst = max(rows, key=lambda row: row["short_bytes"])
    where = f" on {worst['device']}" if len(rows) > 1 else ""
    return f"{format_bytes(worst['short_bytes'])}{where}"


def _row_line(row: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {format_bytes(size)}" for part, size in row["need"].items())
    room = row["have_bytes"] - row["need_bytes"]
    end = f"{format_bytes(-room)} short" if room < 0 else f"{format_bytes(room)} free"
    return (f"  {row['device']}: needs {format_bytes(row['need_bytes'])} ({parts}), has "
            f"{format_bytes(row['have_bytes'])}: {end}")  # fmt: skip


def _fails_line(report: dict[str, Any]) -> str:
    fails, most = report["fails"], report["max_devices"]
    need, have, short = (format_bytes(fails[f"{what}_bytes"]) for what in ("need", "have", "short"))
    has_overhead = any("overhead" in row["need"] for row in report["devices"])
    need += " needed without overhead" if has_overhead else " needed"
    have += " beside it" if has_overhead else ""
    if fails["kind"] == "sum":
        who = f"--max-devices {most} leaves at most" if most else "all devices together have"
        return f"  the sum fails: {need}, {who} {have}: {short} short"
    return f"  the packing fails: {need}, {have} in all, but no cut puts a whole layer "\
           f"where room is left"  # fmt: skip


def _tp_lines(report: dict[str, Any]) -> Iterator[str]:
    """TP groups pack what pipelines cannot: parts of an MLP go where no whole layer does."""
    if report["fails"]["kind"] == "packing":
        words = GROUP_WORDS[report["groups"]]
        yield f"  TP groups, which share a layer with its MLP cut in tiles, {words}"


def _help_line(found: dict[str, int | None], binding: list[str]) -> str:
    offers = []
    if found["context"] is not None:
        offers.append(f"--context {found['context']}")
    if found["slots"] is not None:
        offers.append(f"--slots {found['slots']}")
    if found["prefill_chunk"] is not None:
        offers.append(f"--prefill-chunk {found['prefill_chunk']}")
    if offers:
        return "would fit: " + ", or ".join(offers)
    ways = [_way_out(flags) for flags in binding] or ["add a device"]
    asked = "" if not binding else "with it " if len(binding) == 1 else "with them "
    return f"{asked}no context is small enough: {', '.join(ways)}, or choose a smaller model or "\
           f"dtype"  # fmt: skip


def _way_out(flags: str) -> str:
    """What to do about flags without which it fits."""
    if flags.startswith("--max-devices"):
        return "raise --max-devices"
    if flags.startswith("--devices") and flags.count("--") == 1:
        return "name other or more --devices"
    return f"leave out {flags}"
