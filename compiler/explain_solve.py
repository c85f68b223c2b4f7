"""The solver as an explanation needs it: the choice for a changed question, without its proof."""

from dataclasses import replace

from plancc.compiler.placement.decide import by_search, feasible, unproven
from plancc.compiler.placement.objectives import options
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.preference import preferred, shape_of, within_margin
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.question import build_problem
from plancc.compiler.placement.reach import largest
from plancc.compiler.placement.shapes import placed_stages
from plancc.ir.ask import Ask
from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def can_solve(model: ModelShape, topology: Topology, ask: Ask) -> bool:
    """Whether a choice takes about a second at most; larger questions are for compiling."""
    return not by_search(build_problem(model, topology, ask))


def solve(model: ModelShape, topology: Topology, ask: Ask) -> Placement:
    """What `place` would choose. Raises DoesNotFit without numbers, BadInput as `place` does."""
    problem = build_problem(model, topology, ask)
    context = _context(problem)
    if context is None:
        raise DoesNotFit(f"{model.name} does not fit")
    problem = problem.at_context(context)
    found = options(problem)
    best = min(found.values(), key=lambda option: (option.value, option.num_stages))
    chosen = preferred(found, within_margin(problem, best.value))
    placement = unproven(problem, placed_stages(problem, shape_of(chosen)))
    value = context if ask.objective == "context" else chosen.value
    return replace(placement, proof=placement.proof.model_copy(update={"value": value}))


def _context(problem: Problem) -> int | None:
    if problem.ask.objective != "context":
        return problem.context if feasible(problem) else None
    most = problem.model.max_context
    return largest(1, most, lambda n: feasible(problem.at_context(n)))
