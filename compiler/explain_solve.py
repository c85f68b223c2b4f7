"""The solver as an explanation needs it: the choice for a changed question, without its proof."""

from plancc.compiler.placement.decide import by_search
from plancc.compiler.placement.place import place
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.question import build_problem
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def can_solve(model: ModelShape, topology: Topology, ask: Ask) -> bool:
    """Whether a choice takes about a second at most; larger questions are for compiling."""
    return not by_search(build_problem(model, topology, ask))


def solve(model: ModelShape, topology: Topology, ask: Ask) -> Placement:
    """What `place` would choose; it raises what `place` raises."""
    return place(model, topology, ask, prove=False)
