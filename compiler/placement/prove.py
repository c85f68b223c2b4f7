"""CP-SAT's bound of a goal, from a chain that is known: over few columns where few can matter."""

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.column_bounds import kept_columns
from plancc.compiler.placement.column_model import ColumnModel
from plancc.compiler.placement.columns import ColumnSet
from plancc.compiler.placement.cpsat import Bound, ChainModel, Goal

MOST_COLUMNS = 20_000


def prove(columns: ColumnSet, goal: Goal, hint: Shape, value: int) -> Bound:
    """Minimise the goal from a hinted shape of that value; neither decides but the time it takes.

    A value that no chain reaches would leave no column, hence no solution: an assertion.
    """
    model = _model(columns, goal, value)
    model.add_hint(hint)
    model.cp.minimize(model.value)
    bound, _ = model.solve()
    assert bound is not None, "a hinted problem has a solution"
    return bound


def _model(columns: ColumnSet, goal: Goal, value: int) -> ChainModel:
    problem = columns.problem
    if problem.free_blocks or problem.shares_devices or not goal.sum_factor:
        return ChainModel(columns, goal)
    most_column = value // goal.worst_factor if goal.worst_factor else None
    kept = kept_columns(columns, value // goal.sum_factor, most_column=most_column,
                        num_stages=goal.num_stages)  # fmt: skip
    if sum(int(table.sum()) for table in kept.values()) > MOST_COLUMNS:
        return ChainModel(columns, goal)
    return ColumnModel(columns, goal, kept)
