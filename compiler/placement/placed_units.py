"""From a chain of units to the stages of a placement."""

from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.shapes import block_names, whole_tiles
from plancc.compiler.placement.unit_choice import UnitShape


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
