"""Which prediction is furthest off, what of the topology likely explains it, and all as data."""

from collections.abc import Sequence
from typing import Any, assert_never

from plancc.compiler.explain_measured import Figure, figures_of, stages_of_ranks
from plancc.compiler.explain_room import read_bytes
from plancc.compiler.measured_report import MeasuredReport
from plancc.ir.kernel_spec import EMBED_LAUNCHES, HEAD_LAUNCHES, mixer_launches, mlp_launches
from plancc.ir.plan import Plan
from plancc.ir.sizes import kv_bytes_per_token
from plancc.ir.units import format_bytes, format_ns

_SMALL_READ = 4 * 2**20  # bytes of a kernel below which its launch counts as much as its reading
_NEAR = 0.01


def measured_data(plan: Plan, report: MeasuredReport) -> dict[str, Any]:
    """Every figure, for programs; ns, and bytes for memory."""
    figures = figures_of(plan, report)
    rows = [
        {"kind": item.kind, "what": item.what, "stage": item.stage, "measured": item.measured,
         "predicted": item.predicted,
         "off_percent": None if item.off is None else round(100 * item.off, 2)}
        for item in figures
    ]  # fmt: skip
    return {
        "runs": report.repeat,
        "context": report.decode.context,
        "predicted_context": plan.runtime.context,
        "figures": rows,
        "furthest": furthest_words(plan, report, figures),
    }


def furthest_words(plan: Plan, report: MeasuredReport, figures: Sequence[Figure]) -> str:
    """One sentence about the figure that is off by most of its whole."""
    parts = [item for item in figures
             if item.kind not in ("step", "column") and item.difference is not None]  # fmt: skip
    item = max(parts, key=lambda part: part.weight)
    near = "every part within 1 % of its whole; " if item.weight < _NEAR else ""
    return f"{near}{item.what}: {_difference(item)}; {_cause(plan, report, item)}"


def _difference(item: Figure) -> str:
    assert item.measured is not None
    assert item.predicted is not None
    show = format_bytes if item.kind == "memory" else format_ns
    if item.off is None:
        return f"{show(item.measured)}, {100 * item.measured / item.whole:.1f} % of the step"
    return f"{show(item.measured)} where {show(item.predicted)} were predicted " \
           f"({100 * item.off:+.1f} %)"  # fmt: skip


def _cause(plan: Plan, report: MeasuredReport, item: Figure) -> str:
    match item.kind:
        case "compute":
            return _compute_cause(plan, report, item)
        case "exchange":
            return _exchange_cause(plan, report, item)
        case "hop":
            return _hop_cause(plan, item)
        case "prefill":
            rows = min(plan.runtime.prefill_chunk, report.prefill.tokens)
            return f"likely the matmul curve at {rows} rows, or attention, which no curve has"
        case "memory":
            return _memory_cause(plan, report, item)
        case "rest":
            return "likely sampling, and what the host does between two steps"
        case "clocks":
            return "by so much the run without clocks differs from the one whose parts were timed"
        case "step" | "column":
            raise AssertionError(f"no {item.kind} is a part that is judged")
        case _:
            assert_never(item.kind)


def _compute_cause(plan: Plan, report: MeasuredReport, item: Figure) -> str:
    assert item.stage is not None
    assert item.measured
    assert item.predicted
    size, launches = read_bytes(plan, item.stage), _launches(plan, item.stage)
    shorter = _unread_bytes(plan, report, item.stage)
    if item.measured < item.predicted and shorter > 0.5 * size * (
        1 - item.measured / item.predicted
    ):
        return f"likely the shorter context: {format_bytes(round(shorter))} of KV were not read"
    each = (item.measured - item.predicted) / launches
    if size / launches < _SMALL_READ:
        return (f"likely the launch cost: {each / 1e3:+.1f} us for each of {launches} kernels, "
                f"which read {format_bytes(round(size / launches))} in the mean")  # fmt: skip
    size -= shorter
    return (f"likely the read curve: {size / item.measured:.0f} GB/s, where "
            f"{read_bytes(plan, item.stage) / item.predicted:.0f} were predicted")  # fmt: skip


def _launches(plan: Plan, number: int) -> int:
    stage = plan.stages[number]
    layers = [plan.model.layers[index] for index in range(*stage.layers)]
    count = sum(mixer_launches(layer) + mlp_launches(layer) for layer in layers)
    return (count + EMBED_LAUNCHES * ("embed" in stage.blocks)
            + HEAD_LAUNCHES * ("head" in stage.blocks))  # fmt: skip


def _unread_bytes(plan: Plan, report: MeasuredReport, number: int) -> float:
    """KV that the prediction has a step read, and the run's context had not yet."""
    total, middle = 0.0, sum(report.decode.context) / 2
    for index in range(*plan.stages[number].layers):
        layer = plan.model.layers[index]
        source = plan.model.layers[layer.kv_from] if layer.kv_from is not None else layer
        window = layer.mixer.window or plan.runtime.context
        keys = min(plan.runtime.context, window) - min(middle, window)
        total += max(0.0, keys) * kv_bytes_per_token(plan.model, source, plan.runtime.kv_dtype)
    return total


def _exchange_cause(plan: Plan, report: MeasuredReport, item: Figure) -> str:
    """Ranks of a group that wait for each other tell it by their computing."""
    times = [row.compute_ms for row in report.stages if row.stage == item.stage]
    known = [time for time in times if time is not None]
    difference, layers = item.difference or 0, len(range(*plan.stages[item.stage or 0].layers))
    if known and (max(known) - min(known)) * 1e6 > 0.5 * abs(difference):
        return (f"likely waiting for the slowest rank: its ranks compute {min(known):.2f} to "
                f"{max(known):.2f} ms a step")  # fmt: skip
    return f"likely the link: {difference / layers / 1e3:+.1f} us for each of {layers} exchanges"


def _hop_cause(plan: Plan, item: Figure) -> str:
    stages = stages_of_ranks(plan)
    out = [link for link in plan.links
           if stages[link.from_] == item.stage != stages[link.to]]  # fmt: skip
    links = [link for link in out if link.payload == "hidden"] or out
    size = f" at {links[0].bytes_per_row} bytes a row" if links[0].payload == "hidden" else ""
    return f"likely the link: its curve{size}, over {links[0].transport}"


def _memory_cause(plan: Plan, report: MeasuredReport, item: Figure) -> str:
    row = next(row for row in report.devices if item.what.startswith(f"{row.device}: "))
    planned = plan.device(row.device).ledger.parts()
    name = max(row.allocated, key=lambda column: abs(row.allocated[column] - planned[column]))
    found, held = row.allocated[name], sum(row.allocated.values())
    beyond = (row.peak_bytes or held) - held
    if beyond > abs(found - planned[name]):
        return f"{format_bytes(beyond)} are no buffer of the plan: likely graphs, or a library's"
    return (
        f"most of it {name}: {format_bytes(found)} where {format_bytes(planned[name])} were planned"
    )
