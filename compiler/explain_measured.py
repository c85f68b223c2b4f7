"""A plan's predictions beside what a run of it took: every part of a step, prompt and memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from plancc.compiler.measured_report import MeasuredReport, MeasuredStage
from plancc.ir.plan import Plan

Kind = Literal[
    "step", "compute", "exchange", "hop", "rest", "clocks", "prefill", "memory", "column"
]


@dataclass(frozen=True)
class Figure:
    """Nanoseconds, or bytes of a device's memory and of its ledger's columns. None: not measured,
    or not predicted for that.

    whole: the prediction of the step, prompt or device that it is a part of.
    """

    kind: Kind
    what: str
    measured: int | None
    predicted: int | None
    whole: int
    stage: int | None = None

    @property
    def off(self) -> float | None:
        """Measured over predicted, less one."""
        if self.measured is None or not self.predicted:
            return None
        return self.measured / self.predicted - 1

    @property
    def difference(self) -> int | None:
        if self.measured is None or self.predicted is None:
            return None
        return self.measured - self.predicted

    @property
    def weight(self) -> float:
        """How much of its whole it is off by."""
        return abs(self.difference or 0) / max(1, self.whole)


def figures_of(plan: Plan, report: MeasuredReport) -> tuple[Figure, ...]:
    """The step and its parts in the order in which they happen, the prompt, the devices."""
    parts = tuple(_parts(plan, report))
    step = plan.predicted.decode.step_ns
    whole = Figure("step", "decode step, p50", _ns(report.decode.p50_ms), step, step)
    rest = _rest(whole, parts, report)
    return (whole, *parts, *rest, *_prefill(plan, report), *_memory(plan, report))


def _parts(plan: Plan, report: MeasuredReport) -> Iterator[Figure]:
    step = plan.predicted.decode.step_ns
    for number, time in enumerate(plan.predicted.decode.stages):
        name = f"stage {number}, {'+'.join(rank.device for rank in plan.stages[number].ranks)}"
        rows = [row for row in report.stages if row.stage == number]
        compute = _slowest([row.compute_ms for row in rows])
        yield Figure("compute", f"{name}: compute", compute, time.compute_ns, step, number)
        if time.exchange_ns:
            exchange = _beyond_computing(rows)
            yield Figure("exchange", f"{name}: exchanges", exchange, time.exchange_ns, step, number)
        if time.hop_ns:
            hop = _hop_ns(plan, report, number)
            yield Figure("hop", f"{name}: hop", hop, time.hop_ns, step, number)


def _slowest(times_ms: Sequence[float | None]) -> int | None:
    known = [_ns(time) for time in times_ms if time is not None]
    return max(known) if known else None


def _beyond_computing(rows: Sequence[MeasuredStage]) -> int | None:
    """What a group takes beyond its slowest rank's computing. A rank's own exchanges are longer
    where it computes less: it waits."""
    compute = _slowest([row.compute_ms for row in rows])
    both = [row.compute_ms + row.exchange_ms for row in rows
            if row.compute_ms is not None and row.exchange_ms is not None]  # fmt: skip
    return max(map(_ns, both)) - compute if both and compute is not None else None


def _hop_ns(plan: Plan, report: MeasuredReport, stage: int) -> int | None:
    """The slowest of its rows to another stage; or the token back to the first rank."""
    stages = stages_of_ranks(plan)
    mine = [hop for hop in report.hops if stages[hop.from_] == stage]
    rows = [hop for hop in mine if hop.payload == "hidden" and stages[hop.to] != stage]
    back = [hop for hop in mine if hop.payload == "step" and hop.to == 0]
    return max((round(hop.median_us * 1e3) for hop in rows or back), default=None)


def stages_of_ranks(plan: Plan) -> tuple[int, ...]:
    """By rank: they are numbered through the stages in order."""
    return tuple(number for number, stage in enumerate(plan.stages) for _ in stage.ranks)


def _rest(whole: Figure, parts: tuple[Figure, ...], report: MeasuredReport) -> Iterator[Figure]:
    """What the step took beyond its parts, where all of them were timed; and what it differs by
    where nobody looks at a clock, and the whole step may be one launch."""
    times = [part.measured for part in parts if part.measured is not None]
    if len(times) < len(parts) or whole.measured is None:
        return
    timed = _ns(report.timed.p50_ms) if report.timed else whole.measured
    yield Figure("rest", "between the parts", timed - sum(times), 0, whole.whole)
    if report.timed:
        yield Figure("clocks", "without clocks", whole.measured - timed, 0, whole.whole)


def _prefill(plan: Plan, report: MeasuredReport) -> Iterator[Figure]:
    tokens, predicted = report.prefill.tokens, plan.predicted.prefill
    is_same = predicted is not None and predicted.prompt == tokens
    time = predicted.total_ns if predicted and is_same else None
    yield Figure("prefill", f"prompt of {tokens}", round(report.prefill.seconds * 1e9), time,
                 time or 0)  # fmt: skip


def _memory(plan: Plan, report: MeasuredReport) -> Iterator[Figure]:
    """What the allocator held at most where it tells, else what the buffers are, then each column;
    the overhead of an opened device is in neither."""
    for row in report.devices:
        parts = plan.device(row.device).ledger.parts()
        planned = sum(parts.values()) - parts["overhead"]
        found = sum(row.allocated.values()) if row.peak_bytes is None else row.peak_bytes
        words = "allocated" if row.peak_bytes is None else "allocator's peak"
        yield Figure("memory", f"{row.device}: {words}", found, planned, planned)
        for name, size in parts.items():
            if name in row.allocated:
                yield Figure("column", f"{row.device}: {name}", row.allocated[name], size, planned)


def _ns(time_ms: float) -> int:
    return round(time_ms * 1e6)
