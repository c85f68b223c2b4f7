"""The proof that a plan carries: CP-SAT's bound of T* and of the chosen shape."""

from importlib.metadata import version

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.cpsat import Bound, Goal, can_prove
from plancc.compiler.placement.objectives import Option
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.prove import prove
from plancc.ir.plan import Proof
from plancc.ir.version import VERSION


def prove_choice(
    problem: Problem, found: dict[int, Option], option: Option, shape: Shape, best_shape: Shape
) -> Proof:
    """Prove the best value over all shapes, and the chosen one's at its number of stages.

    The subset DP has found both already, exactly; a CP-SAT optimum that differs is a bug of ours.
    """
    best = min(found.values(), key=lambda other: (other.value, other.num_stages))
    if problem.ask.objective == "context":
        return _context_proof(problem)
    if not can_prove(problem):
        return _proof(problem, "subset dynamic program", VERSION, option.value, best.value)
    bounds = _bounds(problem, found, option, shape, best, best_shape)
    for bound, other in zip(bounds, (best, option), strict=True):
        agrees = bound.value * other.scale == other.value
        assert agrees or not bound.is_optimal, f"CP-SAT {bound}, subset DP {other.value}"
    if not all(bound.is_optimal for bound in bounds):
        return _proof(problem, "subset dynamic program", VERSION, option.value, best.value)
    return _proof(problem, "OR-Tools CP-SAT", version("ortools"), option.value, best.value)


def _bounds(
    problem: Problem, found: dict[int, Option], option: Option, shape: Shape, best: Option,
    best_shape: Shape,
) -> tuple[Bound, Bound]:  # fmt: skip
    """(of T*, of the chosen shape); one stage alone needs no search."""
    if problem.ask.objective == "latency":
        goal = Goal(1, 0, most_stages=max(found))
        of_best = prove(best.columns, goal, best_shape, best.value)
    else:
        of_best = _prove_at(best, best_shape)
    return of_best, of_best if option is best else _prove_at(option, shape)


def _prove_at(option: Option, shape: Shape) -> Bound:
    if option.num_stages == 1:
        value = option.value // option.scale
        return Bound(True, value, value)
    return prove(option.columns, option.goal, shape, option.value // option.scale)


def _context_proof(problem: Problem) -> Proof:
    """The context after it is shown not to fit, so the value is its own bound."""
    return _proof(problem, "furthest reach over sets of seats", VERSION, problem.context,
                  problem.context)  # fmt: skip


def _proof(problem: Problem, name: str, number: str, value: int, best: int) -> Proof:
    return Proof(
        name=name, version=number, space=space_of(problem), status="optimal",
        objective=problem.ask.objective, value=value, bound=value, best=best, best_bound=best,
        gap=0.0,
    )  # fmt: skip


def space_of(problem: Problem) -> str:
    """The shapes over which the optimum was proven, in words."""
    order = "in the asked order" if problem.in_order else "in any order"
    cuts = "the asked cuts" if problem.ask.stage_layers else "all cuts"
    heads = " or ".join(problem.head_modes)
    most = problem.ask.max_devices
    limit = f", at most {most} devices" if most is not None else ""
    return (f"pipelines over {', '.join(problem.seats)} {order}{limit}, {cuts}, head {heads}, "
            f"no TP")  # fmt: skip
