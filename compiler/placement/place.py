"""Place a model: question in, one proven shape out (design.md section 6)."""

from plancc.compiler.placement.decide import MOST_DP_SEATS, by_search, feasible
from plancc.compiler.placement.group_options import GroupOptions, groups_of
from plancc.compiler.placement.margin import within_margin
from plancc.compiler.placement.objectives import Option, options
from plancc.compiler.placement.one_stage import OneStage
from plancc.compiler.placement.options_by_search import place_by_search
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.compiler.placement.preference import shape_of
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.proof import proof_of
from plancc.compiler.placement.question import build_problem
from plancc.compiler.placement.reach import largest
from plancc.compiler.placement.refusal import does_not_fit
from plancc.compiler.placement.runners_up import Field, alternatives
from plancc.compiler.placement.shapes import placed_stages
from plancc.compiler.placement.units import allows_pipelines
from plancc.ir.ask import Ask
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def place(model: ModelShape, topology: Topology, ask: Ask, *, prove: bool = True) -> Placement:
    """The one shape that the design's rule prefers, with its proof. `ask` is filled.

    `prove=False` leaves CP-SAT's confirmation of the exact search out, as for what-if questions.

    Raises BadInput for a question that names what does not exist, DoesNotFit with numbers, GapLeft
    when the proof was not finished and the ask does not accept that.
    """
    problem = build_problem(model, topology, ask)
    _check_groups_are_searched(problem)
    context = _context(problem)
    if context is None:
        raise does_not_fit(model, topology, ask, problem)
    problem = problem.at_context(context)
    return place_by_search(problem) if by_search(problem) else _place(problem, prove=prove)


def _check_groups_are_searched(problem: Problem) -> None:
    if by_search(problem) and not allows_pipelines(problem):
        raise BadInput(
            f"--tp {problem.ask.tp}: groups are not searched over {problem.num_seats} unlike "
            f"devices; name up to {MOST_DP_SEATS} with --devices"
        )


def _context(problem: Problem) -> int | None:
    """The context to place at: the asked one, or the largest; None where it does not fit."""
    if problem.ask.objective != "context":
        return problem.context if feasible(problem) else None
    most = problem.model.max_context
    return largest(1, most, lambda n: feasible(problem.at_context(n)))


def _place(problem: Problem, *, prove: bool) -> Placement:
    pipelines = options(problem) if allows_pipelines(problem) else {}
    least = min((option.value for option in pipelines.values()), default=None)
    groups = groups_of(problem, least)
    values = [*([] if least is None else [least]), *(groups.values.values() if groups else ())]
    most = within_margin(problem, min(values))
    found = Field(problem, pipelines, groups, most, _preferred(pipelines, groups, most))
    stages = _stages(found)
    return Placement(
        stages=stages,
        context=problem.context,
        proof=proof_of(found, min(values), prove=prove),
        alternatives=alternatives(found),
    )


def _preferred(
    pipelines: dict[int, Option], groups: GroupOptions | OneStage | None, most: int
) -> tuple[int, bool]:
    """(devices, with groups): the fewest devices, then a pipeline before TP."""
    keys = [(count, False) for count, option in pipelines.items() if option.value <= most]
    if groups is not None:
        keys += [(count, True) for count, value in groups.values.items() if value <= most]
    return min(keys)


def _stages(found: Field) -> tuple[PlacedStage, ...]:
    devices, has_groups = found.chosen
    if not has_groups:
        return placed_stages(found.problem, shape_of(found.pipelines[devices]))
    assert found.groups is not None
    return found.groups.stages(devices)
