"""The solver as an explanation needs it: the choice for a changed question, without its proof."""

from plancc.compiler.placement.decide import by_search
from plancc.compiler.placement.group_options import searches_groups
from plancc.compiler.placement.place import place
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.question import build_problem
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

LIGHT_SEATS = 4


def can_solve(model: ModelShape, topology: Topology, ask: Ask) -> bool:
    """Whether an exact choice takes seconds, not minutes; larger questions are for compiling."""
    return not by_search(build_problem(model, topology, ask))


def is_light(model: ModelShape, topology: Topology, ask: Ask) -> bool:
    """Whether it takes about half a second: pipelines alone, or groups of few devices."""
    problem = build_problem(model, topology, ask)
    is_heavy = searches_groups(problem) or ask.objective == "workload"
    few = problem.num_seats <= LIGHT_SEATS or not is_heavy
    return few and not by_search(problem)


def solve(model: ModelShape, topology: Topology, ask: Ask) -> Placement:
    """What `place` would choose; it raises what `place` raises."""
    return place(model, topology, ask, prove=False)
