"""Place a model: question in, one proven shape out (design.md section 6)."""

from plancc.compiler.placement.decide import by_search, feasible
from plancc.compiler.placement.objectives import options
from plancc.compiler.placement.options_by_search import place_by_search
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.preference import preferred, shape_of, within_margin
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.proof import prove_choice
from plancc.compiler.placement.question import build_problem
from plancc.compiler.placement.reach import largest
from plancc.compiler.placement.refusal import does_not_fit
from plancc.compiler.placement.runners_up import alternatives
from plancc.compiler.placement.shapes import placed_stages
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def place(model: ModelShape, topology: Topology, ask: Ask) -> Placement:
    """The one shape that the design's rule prefers, with its proof. `ask` is filled.

    Raises BadInput for a question that names what does not exist, DoesNotFit with numbers, GapLeft
    when the proof was not finished and the ask does not accept that.
    """
    problem = build_problem(model, topology, ask)
    context = _context(problem)
    if context is None:
        raise does_not_fit(model, topology, ask, problem)
    problem = problem.at_context(context)
    return place_by_search(problem) if by_search(problem) else _place(problem)


def _context(problem: Problem) -> int | None:
    """The context to place at: the asked one, or the largest; None where it does not fit."""
    if problem.ask.objective != "context":
        return problem.context if feasible(problem) else None
    most = problem.model.max_context
    return largest(1, most, lambda n: feasible(problem.at_context(n)))


def _place(problem: Problem) -> Placement:
    found = options(problem)
    best = min(found.values(), key=lambda option: (option.value, option.num_stages))
    most = within_margin(problem, best.value)
    chosen = preferred(found, most)
    shape = shape_of(chosen)
    best_shape = shape if chosen is best else shape_of(best)
    return Placement(
        stages=placed_stages(problem, shape),
        context=problem.context,
        proof=prove_choice(problem, found, chosen, shape, best_shape),
        alternatives=alternatives(problem, found, chosen, most),
    )
