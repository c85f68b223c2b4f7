"""Shapes with TP groups: the best value by number of devices, and the shape that reaches it."""

from dataclasses import dataclass

from plancc.compiler.cost.compute import Work
from plancc.compiler.placement.chain_search import (
    Least,
    ModeSearch,
    Step,
    least_chains,
    mode_searches,
)
from plancc.compiler.placement.columns import column_set
from plancc.compiler.placement.one_stage import OneStage
from plancc.compiler.placement.placed_units import placed
from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.times import decode_times
from plancc.compiler.placement.unit_choice import preferred_shape
from plancc.compiler.placement.units import may_group, units_of


@dataclass(frozen=True)
class GroupOptions:
    """Best values of shapes with a group, by devices, as far as `least.reach`."""

    problem: Problem
    searches: list[ModeSearch]
    least: Least

    @property
    def values(self) -> dict[int, int]:
        return self.least.by_devices(has_group=True)

    def row(self, *, several: bool) -> tuple[int, int] | str:
        """(value, devices) of the best of one stage or of several, or why there is none."""
        found = [(value, devices) for (devices, grouped, more), value in self.least.values.items()
                 if grouped and more == several]  # fmt: skip
        if found:
            return min(found)
        if not several:
            return self.one_stage.row(several=False)
        return f"more than {self.least.reach / 1e6:.2f} ms, or does not fit"

    @property
    def one_stage(self) -> OneStage:
        return OneStage(self.problem)

    def stages(self, devices: int) -> tuple[PlacedStage, ...]:
        """The preferred shape on so many devices, which must be among the values."""
        shape = preferred_shape(self.searches, self.values[devices], devices, has_group=True)
        return placed(self.problem, shape)


def searches_groups(problem: Problem) -> bool:
    """Where some devices may form a group; a workload is placed over pipelines alone."""
    return problem.ask.objective != "workload" and may_group(problem)


def searches_chains(problem: Problem) -> bool:
    """Groups beside other stages, for a decode step's latency and for the largest context; a group
    that holds the whole model, for what is timed by beats."""
    return problem.ask.objective in ("latency", "context")


def groups_of(problem: Problem, known: int | None) -> "GroupOptions | OneStage | None":
    """Shapes with groups, as far as they are searched."""
    if not searches_groups(problem):
        return None
    return with_groups(problem, known) if searches_chains(problem) else OneStage(problem)


def with_groups(problem: Problem, known: int | None) -> GroupOptions:
    """Shapes that are worth it beside `known`, the best pipeline's value, if one fits."""
    work = Work(1, problem.context, problem.kv_dtype)
    columns = column_set(problem, decode_times(problem, rows=1))
    step = Step(columns, ShareTimes(problem, work), units_of(problem))
    searches = mode_searches(step)
    return GroupOptions(problem, searches, least_chains(searches, known))
