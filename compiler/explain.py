"""Why a plan is as it is, from the plan alone: where a step's time goes, what binds each device."""

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from plancc.compiler.explain_room import Extra, extras_of, read_bytes
from plancc.compiler.explain_words import binding_words, reasons
from plancc.ir.plan import Plan, PlanDevice

if TYPE_CHECKING:
    from plancc.compiler.explain_sensitivity import Sensitivity

NEAR = 0.98
"""Two devices whose rates differ by less than this factor are called equally fast."""


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


@dataclass(frozen=True)
class Binding:
    """What keeps a device from taking more of the model.

    memory   the next layers do not fit
    mate     they fit here, but not on another device of its group
    speed    they fit, and run slower here than where they are
    balance  they fit, and moving them would not help
    alone    the stage holds the whole model
    """

    device: str
    stages: tuple[int, ...]
    used: float  # of the budget
    budget_bytes: int
    free_bytes: int
    largest: str  # the part that fills most of the device
    largest_share: float  # of what is used
    extra: Extra | None  # the layers it could take next; None where there are none
    gb_s: float
    kind: str
    words: str


@dataclass(frozen=True)
class Explanation:
    beats: tuple[Beat, ...]
    bindings: tuple[Binding, ...]
    reasons: tuple[tuple[str, str], ...]  # (about what, sentence)
    sensitivity: "Sensitivity | None" = None  # with a topology only


def explain(plan: Plan) -> Explanation:
    """What the plan document says of itself; nothing is solved."""
    beats = _beats(plan)
    names = dict.fromkeys(name for beat in beats for name in beat.devices)
    return Explanation(
        beats=beats,
        bindings=tuple(_binding(plan, beats, plan.device(name)) for name in names),
        reasons=tuple(reasons(plan)),
    )


def _beats(plan: Plan) -> tuple[Beat, ...]:
    times = plan.predicted.decode.stages
    lengths = [time.compute_ns + time.exchange_ns + time.hop_ns for time in times]
    starts = [0, *accumulate(lengths)]
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
            share=(time.compute_ns + time.exchange_ns) / step,
            gb_s=read_bytes(plan, number) / max(1, time.compute_ns + time.exchange_ns),
        )
        for number, (stage, start, time) in enumerate(zip(plan.stages, starts, times, strict=False))
    )


def _binding(plan: Plan, beats: tuple[Beat, ...], device: PlanDevice) -> Binding:
    here = tuple(beat for beat in beats if device.name in beat.devices)
    parts, used = device.ledger.parts(), max(1, device.ledger.total)
    largest = max(parts, key=lambda part: parts[part])
    extra = _easiest(plan, device)
    mate = _full_mate(plan, device.name, extra)
    kind = _kind(plan, beats, here, extra, mate)
    gb_s = max(beat.gb_s for beat in here)
    return Binding(
        device=device.name,
        stages=tuple(beat.stage for beat in here),
        used=device.ledger.total / max(1, device.budget_bytes),
        budget_bytes=device.budget_bytes,
        free_bytes=device.ledger.free_after,
        largest=largest,
        largest_share=parts[largest] / used,
        extra=extra,
        gb_s=gb_s,
        kind=kind,
        words=binding_words(plan, kind, extra, gb_s, mate or _giver(beats, here, extra)),
    )


def _easiest(plan: Plan, device: PlanDevice) -> Extra | None:
    """The layers next to its own that the device could take with most room left."""
    found = [extra for number in _stages_of(plan, device.name)
             for extra in extras_of(plan, number, device.name)]  # fmt: skip
    return max(found, key=lambda extra: extra.left_bytes, default=None)


def _stages_of(plan: Plan, device: str) -> list[int]:
    return [number for number, stage in enumerate(plan.stages)
            if device in [rank.device for rank in stage.ranks]]  # fmt: skip


def _full_mate(plan: Plan, device: str, extra: Extra | None) -> tuple[str, float] | None:
    """Another device of its group that has no room for the layers that it could take."""
    if extra is None or extra.left_bytes < 0:
        return None
    mates = [rank.device for number in _stages_of(plan, device)
             for rank in plan.stages[number].ranks if rank.device != device]  # fmt: skip
    for mate in mates:
        lacks = [other for number in _stages_of(plan, mate)
                 for other in extras_of(plan, number, mate)
                 if other.layers == extra.layers and other.left_bytes < 0]  # fmt: skip
        if lacks:
            return mate, 0.0
    return None


def _kind(
    plan: Plan, beats: tuple[Beat, ...], here: tuple[Beat, ...], extra: Extra | None,
    mate: tuple[str, float] | None,
) -> str:  # fmt: skip
    if len(plan.stages) == 1:
        return "alone"
    if extra is None or extra.left_bytes < 0:
        return "memory"
    if mate is not None:
        return "mate"
    giver = _giver(beats, here, extra)
    slower = giver is not None and max(beat.gb_s for beat in here) < NEAR * giver[1]
    return "speed" if slower else "balance"


def _giver(
    beats: tuple[Beat, ...], here: tuple[Beat, ...], extra: Extra | None
) -> tuple[str, float] | None:
    """(device, GB/s) of the stage that holds the layers in question."""
    if extra is None:
        return None
    beat = next(beat for beat in beats if beat.layers[0] <= extra.layers[0] < beat.layers[1])
    return "+".join(beat.devices), beat.gb_s
