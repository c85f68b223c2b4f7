"""Why a plan is as it is, from the plan alone: where a step's time goes, what binds each device."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plancc.compiler.explain_beats import Beat, beats_of
from plancc.compiler.explain_binding import Binding, binding_of
from plancc.compiler.explain_words import reasons
from plancc.ir.plan import Plan

if TYPE_CHECKING:
    from plancc.compiler.explain_sensitivity import Sensitivity


@dataclass(frozen=True)
class Explanation:
    beats: tuple[Beat, ...]
    bindings: tuple[Binding, ...]  # in stage order
    reasons: tuple[tuple[str, str], ...]  # (about what, sentence)
    sensitivity: "Sensitivity | None" = None  # with a topology only


def explain(plan: Plan) -> Explanation:
    """What the plan document says of itself; nothing is solved."""
    beats = beats_of(plan)
    names = dict.fromkeys(name for beat in beats for name in beat.devices)
    return Explanation(
        beats=beats,
        bindings=tuple(binding_of(plan, beats, plan.device(name)) for name in names),
        reasons=tuple(reasons(plan)),
    )
