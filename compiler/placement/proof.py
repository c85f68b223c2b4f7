"""The proof that a plan carries: CP-SAT's bound of T* and of the chosen shape."""

from importlib.metadata import version

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.cpsat import Bound, Goal, can_prove
from plancc.compiler.placement.group_options import GroupOptions, searches_chains, searches_groups
from plancc.compiler.placement.objectives import Option
from plancc.compiler.placement.preference import shape_of
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.prove import prove
from plancc.compiler.placement.runners_up import Field
from plancc.compiler.placement.unit_model import Wanted, confirms
from plancc.compiler.placement.units import MOST_EQUAL_RANKS, MOST_RANKS
from plancc.ir.plan import Proof
from plancc.ir.version import VERSION

LABELS = "labels under a Lagrangian bound"
SUBSETS = "subset dynamic program"
EACH = "every group priced"
CP_SAT = ("OR-Tools CP-SAT", version("ortools"))


def proof_of(found: Field, best: int, *, prove: bool) -> Proof:
    """Of the best value over all shapes, and of the chosen one within its number of devices.

    Both have been found exactly by now; a CP-SAT optimum that differs is a bug of ours.
    """
    problem, (devices, has_groups) = found.problem, found.chosen
    if problem.ask.objective == "context":
        return _context_proof(problem)
    value = found.groups.values[devices] if has_groups and found.groups else (
        found.pipelines[devices].value)  # fmt: skip
    if isinstance(found.groups, GroupOptions):
        confirmed = prove and _confirmed(found.groups, value, best, devices, has_groups)
        return _proof(problem, *(CP_SAT if confirmed else (LABELS, VERSION)), value, best)
    if has_groups:
        return _proof(problem, EACH, VERSION, value, best)
    by_pipelines = best == min(other.value for other in found.pipelines.values())
    if not prove or not by_pipelines or not can_prove(problem):
        return _proof(problem, SUBSETS, VERSION, value, best)
    return _proof_of_pipeline(problem, found.pipelines, found.pipelines[devices])


def _confirmed(groups: GroupOptions, value: int, best: int, devices: int, has_groups: bool) -> bool:
    """CP-SAT comes to the best of all, and to the chosen one with a group at its devices."""
    if not confirms(groups.searches, best, Wanted()):
        return False
    if value == best or not has_groups:
        return True
    return confirms(groups.searches, value, Wanted(devices, has_group=True))


def _proof_of_pipeline(problem: Problem, found: dict[int, Option], option: Option) -> Proof:
    best = min(found.values(), key=lambda other: (other.value, other.num_stages))
    shapes = shape_of(option), shape_of(best)
    bounds = _bounds(problem, found, option, shapes[0], best, shapes[1])
    for bound, other in zip(bounds, (best, option), strict=True):
        agrees = bound.value * other.scale == other.value
        assert agrees or not bound.is_optimal, f"CP-SAT {bound}, subset DP {other.value}"
    if not all(bound.is_optimal for bound in bounds):
        return _proof(problem, SUBSETS, VERSION, option.value, best.value)
    return _proof(problem, *CP_SAT, option.value, best.value)


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
    what, tp = _kinds(problem)
    return (f"{what} over {', '.join(problem.seats)} {order}{limit}, {cuts}, head {heads}, "
            f"{tp}")  # fmt: skip


def _kinds(problem: Problem) -> tuple[str, str]:
    """What stages may be."""
    if not searches_groups(problem):
        return "pipelines", "no TP"
    ranks = problem.ask.tp if isinstance(problem.ask.tp, int) else (
        f"up to {MOST_RANKS} devices of a host ({MOST_EQUAL_RANKS} if equal)")  # fmt: skip
    deals = f"groups of {ranks}, every share of the tiles, mixer replicated or owned"
    if not searches_chains(problem):
        only = "" if isinstance(problem.ask.tp, int) else "pipelines, or "
        return f"{only}one TP group", deals
    what = "pipelines of TP groups" if isinstance(problem.ask.tp, int) else "pipelines and TP"
    return what, deals
