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
from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.shapes import block_names, whole_tiles
from plancc.compiler.placement.shares import ShareTimes
from plancc.compiler.placement.times import decode_times
from plancc.compiler.placement.unit_choice import UnitShape, preferred_shape
from plancc.compiler.placement.units import allows_groups, units_of


@dataclass(frozen=True)
class GroupOptions:
    """Best values of shapes with a group, by devices, as far as `least.reach`."""

    problem: Problem
    searches: list[ModeSearch]
    least: Least

    @property
    def values(self) -> dict[int, int]:
        return self.least.by_devices(has_group=True)

    def by_stages(self, *, several: bool) -> tuple[int, int] | None:
        """(value, devices) of the best shape of one stage or of several, if within reach."""
        found = [(value, devices) for (devices, grouped, more), value in self.least.values.items()
                 if grouped and more == several]  # fmt: skip
        return min(found, default=None)

    def stages(self, devices: int) -> tuple[PlacedStage, ...]:
        """The preferred shape on so many devices, which must be among the values."""
        shape = preferred_shape(self.searches, self.values[devices], devices, has_group=True)
        return placed(self.problem, shape)


def searches_groups(problem: Problem) -> bool:
    """Groups are placed for a decode step's latency, and for the largest context."""
    return allows_groups(problem) and problem.ask.objective in ("latency", "context")


def with_groups(problem: Problem, known: int | None) -> GroupOptions:
    """Shapes that are worth it beside `known`, the best pipeline's value, if one fits."""
    work = Work(1, problem.context, problem.kv_dtype)
    columns = column_set(problem, decode_times(problem, rows=1))
    step = Step(columns, ShareTimes(problem, work), units_of(problem))
    searches = mode_searches(step)
    margin = 0.0 if problem.ask.objective == "context" else problem.ask.margin
    return GroupOptions(problem, searches, least_chains(searches, known, margin))


def placed(problem: Problem, shape: UnitShape) -> tuple[PlacedStage, ...]:
    return tuple(_stage(problem, shape, number) for number in range(len(shape.stages)))


def _stage(problem: Problem, shape: UnitShape, number: int) -> PlacedStage:
    stage = shape.stages[number]
    layers = (stage.first, stage.end)
    homes = {block.name: _home(shape, k) for k, block in enumerate(problem.free_blocks)}
    return PlacedStage(
        layers=layers,
        devices=tuple(problem.seats[seat] for seat in stage.unit.seats),
        tiles=stage.deal or ((0, whole_tiles(problem.model, layers)),),
        mixer=stage.unit.mixer,
        blocks=block_names(problem, homes, shape.mode, number, len(shape.stages)),
    )


def _home(shape: UnitShape, block: int) -> int:
    return next(n for n, stage in enumerate(shape.stages) if stage.blocks >> block & 1)
