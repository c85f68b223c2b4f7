"""Predicted times and the objective's value, held against the clock of the checker."""

from collections import Counter
from collections.abc import Iterator

from plancc.compiler.check_clock import Clock
from plancc.ir.ask import Workload
from plancc.ir.plan import Plan, PrefillTime, StageTime, StepTime
from plancc.ir.topology import Topology


def time_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    clock = Clock(plan, topology)
    yield from _decode_problems(plan.predicted.decode, clock)
    yield from _prefill_problems(plan, clock)
    yield from _value_problems(plan, clock)


def _decode_problems(found: StepTime, clock: Clock) -> Iterator[str]:
    stages = clock.decode_stages(rows=1)
    yield from _stage_problems("predicted.decode", stages, found.stages)
    step = sum(map(_whole_ns, stages))
    if found.step_ns != step:
        yield f"predicted.decode.step_ns: recomputed {step}, found {found.step_ns}"
    if not _is_rate(found.tokens_per_s, 1, found.step_ns):
        yield (
            f"predicted.decode.tokens_per_s: {found.step_ns} ns are {1e9 / found.step_ns:.6g}, "
            f"found {found.tokens_per_s}"
        )


def _is_rate(rate: float, tokens: int, time_ns: int) -> bool:
    """Equal but for rounding to two places."""
    return time_ns > 0 and abs(rate - tokens * 1e9 / time_ns) < 0.006


def _stage_problems(
    where: str, expected: tuple[StageTime, ...], found: tuple[StageTime, ...]
) -> Iterator[str]:
    if len(expected) != len(found):
        yield f"{where}.stages: expected {len(expected)}, found {len(found)}"
    for index, (right, given) in enumerate(zip(expected, found, strict=False)):
        for name in ("compute_ns", "exchange_ns", "hop_ns"):
            if getattr(right, name) != getattr(given, name):
                yield (
                    f"{where}.stages[{index}].{name}: recomputed {getattr(right, name)}, found "
                    f"{getattr(given, name)}"
                )


def _prefill_problems(plan: Plan, clock: Clock) -> Iterator[str]:
    expected, found = expected_prefill(plan, clock), plan.predicted.prefill
    if expected is None or found is None:
        if (expected is None) != (found is None):
            yield f"predicted.prefill: expected {'none' if expected is None else 'one'}, " \
                  f"found {'none' if found is None else 'one'}"  # fmt: skip
        return
    yield from _stage_problems("predicted.prefill", expected.stages, found.stages)
    for name in ("prompt", "chunks", "total_ns"):
        right, given = getattr(expected, name), getattr(found, name)
        if right != given:
            yield f"predicted.prefill.{name}: recomputed {right}, found {given}"
    if not _is_rate(found.tokens_per_s, found.prompt, found.total_ns):
        yield f"predicted.prefill.tokens_per_s: recomputed {expected.tokens_per_s:.6g}, " \
              f"found {found.tokens_per_s}"  # fmt: skip


def expected_prefill(plan: Plan, clock: Clock) -> PrefillTime | None:
    """Of the asked prompt; None where a device has no known matmul rate."""
    prompt = plan.ask.prompt or 1
    rows = min(plan.ask.prefill_chunk, prompt)
    chunks = -(-prompt // rows)
    stages = clock.prefill_stages(rows)
    if stages is None:
        return None
    total = (chunks + _num_at_once(plan) - 1) * max(_beats(plan, stages))
    return PrefillTime(
        prompt=prompt,
        chunks=chunks,
        total_ns=total,
        tokens_per_s=prompt * 1e9 / total if total else 0.0,
        stages=stages,
    )


def _value_problems(plan: Plan, clock: Clock) -> Iterator[str]:
    proof, value = plan.provenance.solver, objective_value(plan, clock)
    if proof.objective != plan.ask.objective:
        yield f"provenance.solver.objective: {plan.ask.objective} was asked, " \
              f"found {proof.objective}"  # fmt: skip
    if value != proof.value:
        yield f"provenance.solver.value: recomputed {value}, found {proof.value}"


def objective_value(plan: Plan, clock: Clock) -> int | None:
    """What the objective is worth, in ns (tokens for `context`); None where it has no value."""
    if plan.ask.objective == "context":
        return plan.runtime.context
    if plan.ask.objective == "prefill":
        prefill = expected_prefill(plan, clock)
        return prefill.total_ns if prefill else None
    if plan.ask.objective == "latency":
        return sum(map(_whole_ns, clock.decode_stages(rows=1)))
    if plan.ask.workload is not None:
        return _request_ns(plan, plan.ask.workload, clock)
    return _round_ns(clock, plan.runtime.slots)


def _request_ns(plan: Plan, work: Workload, clock: Clock) -> int | None:
    """One request of the workload: its own prompt, then a round of all streams a token."""
    asked = plan.ask.model_copy(update={"prompt": work.prompt})
    prompted = plan.model_copy(update={"ask": asked})
    prefill = expected_prefill(prompted, Clock(prompted, clock.topology))
    if prefill is None:
        return None
    return prefill.total_ns + work.output * _round_ns(clock, work.streams)


def _round_ns(clock: Clock, streams: int) -> int:
    """Every stream advances by a token: the slowest beat once a stream in flight, or all once."""
    count = len(clock.plan.stages)
    stages = clock.decode_stages(-(-streams // count))
    return max(min(streams, count) * max(_beats(clock.plan, stages)), sum(map(_whole_ns, stages)))


def _whole_ns(stage: StageTime) -> int:
    return stage.compute_ns + stage.exchange_ns + stage.hop_ns


def _beats(plan: Plan, times: tuple[StageTime, ...]) -> list[int]:
    """What can be busy at the same time: each hop, and each device with all its stages."""
    work: Counter[str] = Counter()
    for stage, time in zip(plan.stages, times, strict=True):
        work.update({rank.device: time.compute_ns + time.exchange_ns for rank in stage.ranks})
    return [*work.values(), *(time.hop_ns for time in times)]


def _num_at_once(plan: Plan) -> int:
    """Stages that can be busy at the same time: those led by different devices."""
    return len({stage.ranks[0].device for stage in plan.stages})
