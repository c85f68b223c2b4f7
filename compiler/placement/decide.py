"""Whether a problem has any placement, by the means that suits it; and a bare placement."""

from plancc.compiler.placement.columns import column_set
from plancc.compiler.placement.cpsat import Goal
from plancc.compiler.placement.group_options import searches_chains, searches_groups
from plancc.compiler.placement.one_stage import OneStage
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.reach import chains_fit
from plancc.compiler.placement.search import least_value, needs_search
from plancc.compiler.placement.timeless import no_times
from plancc.compiler.placement.units import allows_pipelines, singles, units_of
from plancc.ir.plan import Proof

MOST_DP_SEATS = 10
MOST_REACH_SEATS = 16  # sets of seats that can be listed where no times are asked about


def by_search(problem: Problem) -> bool:
    """CP-SAT alone decides: a budget is shared by seats, or the sets of seats are too many."""
    return needs_search(problem, MOST_DP_SEATS)


def feasible(problem: Problem) -> bool:
    """Whether a shape of those that `place` searches leaves every device within its budget."""
    if kept_bytes(problem) > room_bytes(problem):
        return False
    if not problem.shares_devices and not needs_search(problem, MOST_REACH_SEATS):
        return _pipelines_fit(problem) or (not by_search(problem) and _groups_fit(problem))
    goal = Goal(1, 0, most_stages=problem.ask.max_devices)
    return least_value(column_set(problem, no_times(problem)), goal) is not None


def kept_bytes(problem: Problem) -> int:
    """Layers and blocks once: no shape has less, whatever its buffers and copies."""
    blocks = problem.end_bytes("first") + problem.end_bytes("last")
    blocks += problem.block_bytes("head", beside_embed=problem.model.has_tied_head)
    blocks += sum(block.size_bytes for block in problem.free_blocks)
    return int(problem.layer_bytes[-1]) + blocks


def room_bytes(problem: Problem) -> int:
    """Of all devices beside their overhead, or of the roomiest that --max-devices allows."""
    budgets = {name: int(problem.budgets[i]) for i, name in enumerate(problem.seats)}
    rooms = sorted((max(0, size) for size in budgets.values()), reverse=True)
    return sum(rooms[: problem.ask.max_devices])


def _pipelines_fit(problem: Problem) -> bool:
    return allows_pipelines(problem) and chains_fit(problem, singles(problem))


def _groups_fit(problem: Problem) -> bool:
    if not searches_groups(problem):
        return False
    if searches_chains(problem):
        return chains_fit(problem, units_of(problem))
    return bool(OneStage(problem).wholes)


def unproven(problem: Problem, stages: tuple[PlacedStage, ...]) -> Placement:
    """A placement for its sums alone, as for an attempt that does not fit."""
    proof = Proof(name="none", version="0", space="none", status="feasible",
                  objective=problem.ask.objective, value=0, bound=0, best=0, best_bound=0,
                  gap=0.0)  # fmt: skip
    return Placement(stages=stages, context=problem.context, proof=proof)
