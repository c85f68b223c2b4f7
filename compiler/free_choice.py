"""What pins cost: the shape that the compiler would choose without them, as a row of the plan."""

from plancc.compiler.pins import PREFIX, UNPINNED, pins_of
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.compiler.summary import layer_range
from plancc.ir.ask import Ask
from plancc.ir.errors import PlanccError
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Alternative
from plancc.ir.topology import Topology


def free_row(
    model: ModelShape, topology: Topology, ask: Ask, chosen: Placement
) -> Alternative | None:
    """The choice without the pins; None where nothing is pinned, or where that has no answer.

    Its value is of the objective, as the plan's is. It is a second solve, without a proof.
    """
    from plancc.compiler.explain_solve import can_solve, solve  # the solver is slow to import

    pins = pins_of(ask)
    free = ask.model_copy(update=UNPINNED)
    if not pins:
        return None
    try:
        if not can_solve(model, topology, free):
            return None
        found = solve(model, topology, free)
    except PlanccError:  # other devices than the pinned ones may lack a number that it needs
        return None
    same = found.stages == chosen.stages
    return Alternative(
        shape=PREFIX + ", ".join(pins),
        verdict="chosen" if same else "not allowed",
        value=found.proof.value,
        note=None if same else layout_words(found.stages),
    )


def layout_words(stages: tuple[PlacedStage, ...]) -> str:
    """'gpu0 0..30 | gpu1+gpu2 31..79, head first' for stages in order."""
    words = [f"{'+'.join(stage.devices)} {layer_range(stage.layers)}" for stage in stages]
    first = len(stages) > 1 and "head" in stages[0].blocks
    return " | ".join(words) + (", head first" if first else "")
