"""The choice where CP-SAT alone decides: shared budgets, or more seats than sets can be listed."""

from importlib.metadata import version

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.columns import ColumnSet, column_set
from plancc.compiler.placement.cpsat import Bound, Goal, can_prove
from plancc.compiler.placement.margin import within_margin
from plancc.compiler.placement.narrowing import narrowed
from plancc.compiler.placement.objectives import allowed_counts
from plancc.compiler.placement.placement import Placement
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.proof import space_of
from plancc.compiler.placement.search import (
    fewest_stages,
    found_shape,
    least_value,
    preferred_shape,
    with_stages,
)
from plancc.compiler.placement.shapes import placed_stages
from plancc.compiler.placement.times import decode_times, prompt_times
from plancc.ir.errors import BadInput, GapLeft
from plancc.ir.plan import Alternative, Proof


def place_by_search(problem: Problem) -> Placement:
    """Raises GapLeft where the limit ended the proof and the ask does not accept a gap.

    Raises BadInput for a workload: CP-SAT has no model of it.
    """
    if problem.ask.objective == "workload":
        raise BadInput(_no_workload(problem))
    if problem.ask.objective in ("latency", "context"):
        columns, goal, scale = _latency(problem)
        found = _found(columns, goal)
        best = found[1]
        if not best.is_optimal:
            return _unfinished(problem, *found)
        count = fewest_stages(columns, goal, within_margin(problem, best.value))
    else:
        columns, goal, scale, best = _best_by_count(problem)
        assert goal.num_stages is not None
        count = goal.num_stages
    shape, chosen = preferred_shape(columns, with_stages(goal, count))
    proof = _proof(problem, best, chosen, scale)
    if proof.status != "optimal" and not problem.ask.accept_gap:
        raise _gap_left(proof)
    row = Alternative(shape=f"pipeline of {count} stages", verdict="chosen", value=proof.value)
    return Placement(placed_stages(problem, shape), problem.context, proof, (row,))


def _found(columns: ColumnSet, goal: Goal) -> tuple[Shape, Bound]:
    """A shape with its bound: near the relaxation's where that can be had, else from all columns.

    Raises GapLeft where the limit came before any shape.
    """
    problem, found = columns.problem, None
    if not problem.free_blocks and not problem.shares_devices and can_prove(problem):
        found = narrowed(columns, goal)
    found = found or found_shape(columns, goal)
    if found is None:
        raise GapLeft("no plan was found within the solver's limit, though one may exist; name "
                      "fewer devices with --devices")  # fmt: skip
    return found


def _unfinished(problem: Problem, shape: Shape, best: Bound) -> Placement:
    """The best that was met, where the limit came before the proof: fewer devices are not tried."""
    proof = _proof(problem, best, best, 1)
    if not problem.ask.accept_gap:
        raise _gap_left(proof)
    row = Alternative(shape=f"pipeline of {len(shape.seats)} stages", verdict="chosen",
                      value=proof.value)  # fmt: skip
    return Placement(placed_stages(problem, shape), problem.context, proof, (row,))


def _gap_left(proof: Proof) -> GapLeft:
    return GapLeft(f"feasible, gap {100 * proof.gap:.2g} %: the proof was not finished; "
                   f"--accept-gap takes the plan as it is")  # fmt: skip


def _no_workload(problem: Problem) -> str:
    if problem.shares_devices:
        return "--workload: --devices names a device twice; a workload is placed on devices as such"
    return (f"--workload: {problem.num_seats} unlike devices are too many to search; name some "
            f"with --devices")  # fmt: skip


def _latency(problem: Problem) -> tuple[ColumnSet, Goal, int]:
    goal = Goal(1, 0, most_stages=problem.ask.max_devices)
    return column_set(problem, decode_times(problem, rows=1)), goal, 1


def _best_by_count(problem: Problem) -> tuple[ColumnSet, Goal, int, Bound]:
    """Values depend on the number of stages: each is solved, then the margin's rule."""
    rows: list[tuple[int, int, ColumnSet, Goal, int, Bound]] = []
    for count in allowed_counts(problem):
        columns, goal, scale = _counted(problem, count)
        bound = least_value(columns, goal)
        if bound is not None:
            rows.append((bound.value * scale, count, columns, goal, scale, bound))
    best = min(rows, key=lambda row: row[:2])
    most = within_margin(problem, best[0])
    _, _, columns, goal, scale, _ = next(row for row in rows if row[0] <= most)
    return columns, goal, scale, Bound(best[5].is_optimal, best[0] // scale, best[0] // scale)


def _counted(problem: Problem, count: int) -> tuple[ColumnSet, Goal, int]:
    ask = problem.ask
    if ask.objective == "prefill":
        rows = min(ask.prefill_chunk, ask.prompt or 1)
        repeats = problem.num_seats - len(set(problem.seats))  # of which every seat is used
        beats = -(-(ask.prompt or 1) // rows) + count - repeats - 1
        columns = column_set(problem, prompt_times(problem, rows))
        return columns, Goal(0, 1, num_stages=count), beats
    columns = column_set(problem, decode_times(problem, -(-ask.slots // count)))
    return columns, Goal(1, min(ask.slots, count), num_stages=count), 1


def _proof(problem: Problem, best: Bound, chosen: Bound, scale: int) -> Proof:
    is_optimal = best.is_optimal and chosen.is_optimal
    value = problem.context if problem.ask.objective == "context" else chosen.value * scale
    bound = value if problem.ask.objective == "context" else chosen.bound * scale
    top = value if problem.ask.objective == "context" else best.value * scale
    low = value if problem.ask.objective == "context" else best.bound * scale
    return Proof(
        name="OR-Tools CP-SAT", version=version("ortools"), space=space_of(problem),
        status="optimal" if is_optimal else "feasible", objective=problem.ask.objective,
        value=value, bound=bound, best=top, best_bound=low,
        gap=0.0 if is_optimal else round((top - low) / top, 6),
    )  # fmt: skip
