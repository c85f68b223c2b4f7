"""Where the time of one decode step goes: stages one after another, as the plan predicts them."""

from dataclasses import dataclass
from itertools import accumulate

from plancc.compiler.explain_room import read_bytes
from plancc.ir.plan import Plan, StageTime


@dataclass(frozen=True)
class Beat:
    """One stage of a decode step; it begins when the rows of the stage before it have come."""

    stage: int
    devices: tuple[str, ...]
    mixer: str
    layers: tuple[int, int]
    start_ns: int
    compute_ns: int
    exchange_ns: int
    hop_ns: int
    share: float  # of the step: compute and exchange
    gb_s: float  # bytes of its whole layers over its time: how fast a layer is done there

    @property
    def busy_ns(self) -> int:
        return self.compute_ns + self.exchange_ns


def beats_of(plan: Plan) -> tuple[Beat, ...]:
    """In stage order."""
    times = plan.predicted.decode.stages
    starts = [0, *accumulate(busy_ns(time) + time.hop_ns for time in times)]
    step = max(1, plan.predicted.decode.step_ns)
    return tuple(
        Beat(
            stage=number,
            devices=tuple(rank.device for rank in stage.ranks),
            mixer=stage.mixer,
            layers=stage.layers,
            start_ns=start,
            compute_ns=time.compute_ns,
            exchange_ns=time.exchange_ns,
            hop_ns=time.hop_ns,
            share=busy_ns(time) / step,
            gb_s=read_bytes(plan, number) / max(1, busy_ns(time)),
        )
        for number, (stage, start, time) in enumerate(zip(plan.stages, starts, times, strict=False))
    )


def busy_ns(time: StageTime) -> int:
    return time.compute_ns + time.exchange_ns


def paced_times(plan: Plan) -> tuple[StageTime, ...]:
    """Times of the step that the objective counts: a prompt's chunk, or a decoded token."""
    prefill = plan.predicted.prefill
    if plan.ask.objective == "prefill" and prefill is not None:
        return prefill.stages
    return plan.predicted.decode.stages


def slowest_stage(plan: Plan) -> int:
    times = paced_times(plan)
    return max(range(len(times)), key=lambda number: busy_ns(times[number]))


def is_paced(plan: Plan) -> bool:
    """Whether the slowest stage sets the pace of all, as it does where stages work at once."""
    return plan.ask.objective in ("throughput", "prefill")
