"""What pins cost: the shape that the compiler would choose without them, as a row of the plan."""

from plancc.compiler.pins import PREFIX, UNPINNED, flag, pinned
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.compiler.summary import layer_range
from plancc.ir.ask import Ask
from plancc.ir.errors import PlanccError
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Alternative
from plancc.ir.topology import Topology


def free_row(
    model: ModelShape,
    topology: Topology,
    ask: Ask,
    stages: tuple[PlacedStage, ...],
    *,
    is_patient: bool = False,
) -> Alternative | None:
    """The choice without the pins; None where nothing is pinned, or where that has no answer.

    Its value is of the objective, as the plan's is. It is a second solve, without a proof, so a
    question that takes long is asked only of the `is_patient`; for others `--tp` then stays as it
    is, where that helps.
    """
    from plancc.compiler.explain_solve import can_solve, is_light, solve  # slow to import

    accepts = can_solve if is_patient else is_light
    for freed in _freed(ask):
        free = ask.model_copy(update={name: UNPINNED[name] for name in freed})
        try:
            if accepts(model, topology, free):
                return _row(freed, solve(model, topology, free), stages)
        except PlanccError:  # other devices than the pinned ones may lack a number that it needs
            return None
    return None


def _freed(ask: Ask) -> list[tuple[str, ...]]:
    """Pins to leave out: all, and all but --tp."""
    pins = pinned(ask)
    rest = tuple(name for name in pins if name != "tp")
    return [names for names in dict.fromkeys((pins, rest)) if names]


def _row(freed: tuple[str, ...], found: Placement, stages: tuple[PlacedStage, ...]) -> Alternative:
    same = found.stages == stages
    return Alternative(
        shape=PREFIX + ", ".join(flag(name) for name in freed),
        verdict="chosen" if same else "not allowed",
        value=found.proof.value,
        note=None if same else layout_words(found.stages),
    )


def layout_words(stages: tuple[PlacedStage, ...]) -> str:
    """'gpu0 0..30 | gpu1+gpu2 31..79 owned, head first' for stages in order."""
    words = [_stage_words(stage) for stage in stages]
    first = len(stages) > 1 and "head" in stages[0].blocks
    return " | ".join(words) + (", head first" if first else "")


def _stage_words(stage: PlacedStage) -> str:
    owned = " owned" if stage.mixer == "owned" else ""
    return f"{'+'.join(stage.devices)} {layer_range(stage.layers)}{owned}"
