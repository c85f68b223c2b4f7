"""Many unlike seats: CP-SAT over the columns near the bound, a little further each time.

Each reach is a problem of its own: all columns of chains worth at most so much. The first one with
a solution has the optimum in it; one without raises the bound.
"""

from typing import Literal

import numpy as np

from plancc.compiler.cost.compute import Work
from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.chain_search import Step, mode_searches
from plancc.compiler.placement.column_bounds import kept_columns
from plancc.compiler.placement.column_model import ColumnModel
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.cpsat import Bound, Goal
from plancc.compiler.placement.search import shape_in
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.units import singles

REACHES = (1.006, 1.012, 1.03, 1.08, 1.2, 1.5)
FIRST_LIMIT, LAST_LIMIT = 8.0, 30.0  # of CP-SAT's own clock, for each reach


def narrowed(columns: ColumnSet, goal: Goal) -> tuple[Shape, Bound] | None:
    """The best chain met, with a true bound; None where no reach had one within its limit."""
    problem = columns.problem
    work = Work(1, problem.context, problem.kv_dtype)
    step = Step(columns, ShareTimes(problem, work), singles(problem))
    low = min(search.bound for search in mode_searches(step))
    bound = int(np.ceil(low))
    for reach in REACHES:
        most = int(low * reach)
        found = _within(columns, goal, most, None, FIRST_LIMIT)
        if found == "none":
            bound = max(bound, most + 1)
        elif isinstance(found, tuple):
            return _improved(columns, goal, found, bound)
    return None


def _improved(
    columns: ColumnSet, goal: Goal, known: tuple[Shape, Bound], bound: int
) -> tuple[Shape, Bound]:
    """Once more, over the columns of chains as good as the known one, and for longer."""
    shape, first = known
    proven = max(bound, first.bound)
    if not first.is_optimal:
        better = _within(columns, goal, first.value, shape, LAST_LIMIT)
        if isinstance(better, tuple):
            shape, first = better
            proven = max(proven, first.bound)
    proven = min(proven, first.value)
    return shape, Bound(proven == first.value, first.value, proven)


def _within(
    columns: ColumnSet, goal: Goal, most: int, hint: Shape | None, limit: float
) -> tuple[Shape, Bound] | Literal["none", "unknown"]:
    """The best chain worth at most so much; "none" is proven, "unknown" the limit's."""
    kept = kept_columns(columns, most)
    if not any(table.any() for table in kept.values()):
        return "none"
    model = ColumnModel(columns, goal, kept)
    model.cp.add(model.value <= most)
    model.cp.minimize(model.value)
    if hint is not None:
        model.add_hint(hint)
    found, solver = model.solve(limit)
    if found is not None:
        return shape_in(model, solver), found
    return "none" if model.is_infeasible else "unknown"
