"""What a run took, from the clocks of its ranks, beside what the plan predicted.

A hop is timed in the run itself: from the start of the send to the end of the receipt, by the
monotonic clock that all processes of a host share. Between hosts there is no such clock, and no
hop is told.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from plancc.executor.request import Outcome, RankReport
from plancc.executor.seats import seats_of
from plancc.executor.session import LoadSummary
from plancc.ir.plan import Plan

REPORT_FORMAT = "plancc.report/1"


@dataclass(frozen=True)
class Hop:
    """A link's decode hops: median ns, of how many. payload: hidden rows, or a step's news."""

    source: int
    target: int
    payload: str
    median_ns: int
    count: int


def hops_of(plan: Plan, reports: Mapping[int, RankReport]) -> tuple[Hop, ...]:
    """Medians of every link that was used between ranks of one host."""
    hosts = {seat.rank: seat.host for seat in seats_of(plan)}
    hops = []
    for index, link in enumerate(plan.links):
        sent = reports[link.from_].sent.get(index, ())
        received = reports[link.to].received.get(index, ())
        pairs = list(zip(reversed(sent), reversed(received), strict=False))
        if pairs and hosts[link.from_] == hosts[link.to]:
            median_ns = round(median(end - begin for begin, end in pairs))
            hops.append(Hop(link.from_, link.to, link.payload, median_ns, len(pairs)))
    return tuple(hops)


def percentile(values: Sequence[int], percent: float) -> int:
    """The smallest value that so many percent of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0


def tokens_per_s(count: int, time_ns: int) -> float:
    return count * 1e9 / time_ns if time_ns else 0.0


def run_report(
    plan: Plan,
    load: LoadSummary,
    outcome: Outcome,
    prompt_tokens: int,
    reports: Mapping[int, RankReport],
) -> dict[str, Any]:
    """Plain data for --json and --report; every predicted figure stands beside its measured one."""
    hops = hops_of(plan, reports)
    return {
        "format": REPORT_FORMAT,
        "plan": plan.digest,
        "model": plan.model.name,
        "load": {
            "seconds": load.load_ns / 1e9,
            "open_seconds": load.open_ns / 1e9,
            "ready_seconds": load.wall_ns / 1e9,
            "bytes": load.bytes_read,
            "gb_s": load.gb_s,
        },
        "prefill": {
            "tokens": prompt_tokens,
            "seconds": outcome.prefill_ns / 1e9,
            "tokens_per_s": tokens_per_s(prompt_tokens, outcome.prefill_ns),
            "predicted": _predicted_prefill(plan),
        },
        "decode": _decode(plan, outcome.decode_ns, prompt_tokens),
        "stages": _stages(plan, reports),
        "hops": _hops(plan, hops),
        "hop_median_us": _hidden_median_us(hops),
        "devices": _devices(plan, load, reports),
    }


def _decode(plan: Plan, steps_ns: Sequence[int], prompt_tokens: int) -> dict[str, Any]:
    """`context`: tokens that the first and the last step attend to; predicted_context: as many
    as the prediction is for."""
    return {
        "context": [prompt_tokens + 1, prompt_tokens + len(steps_ns)],
        "predicted_context": plan.runtime.context,
        "steps": len(steps_ns),
        "seconds": sum(steps_ns) / 1e9,
        "tokens_per_s": tokens_per_s(len(steps_ns), sum(steps_ns)),
        "p50_ms": percentile(steps_ns, 50) / 1e6,
        "p95_ms": percentile(steps_ns, 95) / 1e6,
        "predicted_ms": plan.predicted.decode.step_ns / 1e6,
        "predicted_tokens_per_s": plan.predicted.decode.tokens_per_s,
    }


def _hidden_median_us(hops: Sequence[Hop]) -> float | None:
    medians = [hop.median_ns for hop in hops if hop.payload == "hidden"]
    return median(medians) / 1e3 if medians else None


def _predicted_prefill(plan: Plan) -> dict[str, Any] | None:
    predicted = plan.predicted.prefill
    if predicted is None:
        return None
    return {"tokens": predicted.prompt, "tokens_per_s": predicted.tokens_per_s}


def _hops(plan: Plan, hops: Sequence[Hop]) -> list[dict[str, Any]]:
    """predicted_us is None where a hop is none that the prediction is about."""
    stages = {seat.rank: seat.stage for seat in seats_of(plan)}
    sends_rows = {hop.source for hop in hops if _is_forward(hop, stages)}
    rows = []
    for hop in hops:
        is_back = hop.payload == "step" and hop.target == 0 and hop.source not in sends_rows
        is_predicted = is_back or _is_forward(hop, stages)
        predicted = plan.predicted.decode.stages[stages[hop.source]]
        rows.append(
            {
                "from": hop.source,
                "to": hop.target,
                "payload": hop.payload,
                "median_us": hop.median_ns / 1e3,
                "count": hop.count,
                "stage": stages[hop.source],
                "predicted_us": predicted.hop_ns / 1e3 if is_predicted else None,
            }
        )
    return rows


def _is_forward(hop: Hop, stages: Mapping[int, int]) -> bool:
    """Whether it takes rows from one stage to another."""
    return hop.payload == "hidden" and stages[hop.source] != stages[hop.target]


def _stages(plan: Plan, reports: Mapping[int, RankReport]) -> list[dict[str, Any]]:
    """A decode step in each stage: p50 of its segments and of its exchanges, waiting for slower
    ranks included, beside what was predicted. None: it was not timed."""
    rows = []
    for seat in seats_of(plan):
        predicted, report = plan.predicted.decode.stages[seat.stage], reports[seat.rank]
        rows.append(
            {
                "stage": seat.stage,
                "rank": seat.rank,
                "device": seat.device,
                "compute_ms": _p50_ms(report.run_ns),
                "predicted_compute_ms": predicted.compute_ns / 1e6,
                "exchange_ms": _p50_ms(report.exchange_ns) if seat.group else 0.0,
                "predicted_exchange_ms": predicted.exchange_ns / 1e6,
                "predicted_hop_us": predicted.hop_ns / 1e3,
            }
        )
    return rows


def _p50_ms(times_ns: Sequence[int]) -> float | None:
    return percentile(times_ns, 50) / 1e6 if times_ns else None


def _devices(
    plan: Plan, load: LoadSummary, reports: Mapping[int, RankReport]
) -> list[dict[str, Any]]:
    """peak_bytes: of the allocator, where the device has one that tells."""
    peaks: dict[str, int] = {}
    for seat in seats_of(plan):
        if peak := reports[seat.rank].peak_bytes:
            peaks[seat.device] = max(peak, peaks.get(seat.device, 0))
    return [
        {
            "device": device.name,
            "planned": device.ledger.model_dump(exclude={"free_after"}),
            "allocated": load.allocated.get(device.name, {}),
            "peak_bytes": peaks.get(device.name),
        }
        for device in plan.devices
    ]
