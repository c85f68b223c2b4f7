"""What keeps a device from taking more of the model: memory, its group, its speed, or balance."""

from dataclasses import dataclass
from typing import Literal

from plancc.compiler.explain_beats import Beat, busy_ns, is_paced, paced_times, slowest_stage
from plancc.compiler.explain_room import Extra, extras_of
from plancc.compiler.summary import layer_range
from plancc.ir.plan import Plan, PlanDevice, Stage
from plancc.ir.units import format_bytes

NEAR = 0.98
"""Two devices whose rates differ by less than this factor are called equally fast."""

Kind = Literal["alone", "memory", "mate", "pace", "speed", "balance"]


@dataclass(frozen=True)
class Binding:
    """What binds a device.

    memory   the next layers do not fit
    mate     they fit here, but not on another device of its group
    pace     its stage is the slowest, and all others wait for it
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
    kind: Kind
    words: str


def binding_of(plan: Plan, beats: tuple[Beat, ...], device: PlanDevice) -> Binding:
    """What binds one device of a plan, by the plan's own numbers."""
    here = tuple(beat for beat in beats if device.name in beat.devices)
    parts = device.ledger.parts()
    largest = max(parts, key=lambda part: parts[part])
    extra = _easiest(plan, device)
    mate = _full_mate(plan, device.name, extra)
    kind, words = _bound(plan, beats, device.name, extra, mate)
    return Binding(
        device=device.name,
        stages=tuple(beat.stage for beat in here),
        used=device.ledger.total / max(1, device.budget_bytes),
        budget_bytes=device.budget_bytes,
        free_bytes=device.ledger.free_after,
        largest=largest,
        largest_share=parts[largest] / max(1, device.ledger.total),
        extra=extra,
        gb_s=max(beat.gb_s for beat in here),
        kind=kind,
        words=words,
    )


def _bound(
    plan: Plan, beats: tuple[Beat, ...], device: str, extra: Extra | None, mate: str | None
) -> tuple[Kind, str]:
    here = tuple(beat for beat in beats if device in beat.devices)
    if len(plan.stages) == 1:
        return "alone", _whole(plan.stages[0], device)
    if is_paced(plan) and slowest_stage(plan) in [beat.stage for beat in here]:
        return "pace", "pace: the slowest stage, which all others wait for"
    if extra is None:
        return "memory", "has no neighbour whose layers it could take"
    giver = next(b for b in beats if b.layers[0] <= extra.layers[0] < b.layers[1])
    names = "+".join(giver.devices)
    if extra.left_bytes < 0:
        return "memory", f"memory: {_need(extra, names)}"
    room = f"room for {extra.more_layers} more"
    if mate is not None:
        return "mate", f"its group: {room}, but {mate} has none"
    if is_paced(plan):
        return "balance", f"balance: {room}, {_pace(plan, here)}"
    return _by_speed(plan, room, names, giver.gb_s / max(1e-9, max(beat.gb_s for beat in here)))


def _whole(stage: Stage, device: str) -> str:
    lead = stage.ranks[0].device
    if len(stage.ranks) == 1:
        return "holds the whole model"
    if stage.mixer == "replicated" or device == lead:
        return "shares all layers, runs all mixers"
    return f"shares all layers, mixers on {lead}"


def _need(extra: Extra, names: str) -> str:
    one = extra.layers[1] - extra.layers[0] == 1
    what = f"layer {layer_range(extra.layers)}" if one else f"layers {layer_range(extra.layers)}"
    return (
        f"{what} of {names} {'needs' if one else 'need'} {format_bytes(extra.size_bytes)}, "
        f"{format_bytes(-extra.left_bytes)} too much"
    )


def _by_speed(plan: Plan, room: str, names: str, ratio: float) -> tuple[Kind, str]:
    """`ratio`: how much faster the neighbour goes through its layers."""
    if ratio * NEAR > 1:
        faster = f"{ratio:.2g} times faster" if ratio < 100 else "far faster"
        return "speed", f"speed: {room}, but {names} reads {faster}"
    if plan.ask.stage_layers is not None:
        return "balance", f"balance: {room}, but the cut was asked for"
    as_fast = ratio > NEAR
    return (
        "balance",
        f"balance: {room}, but {names + ' is as fast' if as_fast else 'nothing is won'}",
    )


def _pace(plan: Plan, here: tuple[Beat, ...]) -> str:
    """How near its stage is to the slowest one, and what one more layer would make of that."""
    times = paced_times(plan)
    most = max(1, busy_ns(times[slowest_stage(plan)]))
    beat = max(here, key=lambda beat: busy_ns(times[beat.stage]))
    share = busy_ns(times[beat.stage]) / most
    count = beat.layers[1] - beat.layers[0]
    more = share * (count + 1) / count
    return f"{100 * share:.0f} % of the slowest stage's time; {100 * more:.0f} % with one more"


def _easiest(plan: Plan, device: PlanDevice) -> Extra | None:
    """The layers next to its own that the device could take with most room left."""
    found = [extra for number in _stages_of(plan, device.name)
             for extra in extras_of(plan, number, device.name)]  # fmt: skip
    return max(found, key=lambda extra: extra.left_bytes, default=None)


def _stages_of(plan: Plan, device: str) -> list[int]:
    return [number for number, stage in enumerate(plan.stages)
            if device in [rank.device for rank in stage.ranks]]  # fmt: skip


def _full_mate(plan: Plan, device: str, extra: Extra | None) -> str | None:
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
            return mate
    return None
