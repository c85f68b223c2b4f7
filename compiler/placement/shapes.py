"""From a shape of the solver to the stages of a placement."""

from collections.abc import Mapping

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import Problem
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape


def placed_stages(problem: Problem, shape: Shape) -> tuple[PlacedStage, ...]:
    return tuple(_stage(problem, shape, number) for number in range(len(shape.seats)))


def _stage(problem: Problem, shape: Shape, number: int) -> PlacedStage:
    layers = (shape.cuts[number], shape.cuts[number + 1])
    homes = {block.name: shape.block_stages[k] for k, block in enumerate(problem.free_blocks)}
    return PlacedStage(
        layers=layers,
        devices=(problem.seats[shape.seats[number]],),
        tiles=((0, whole_tiles(problem.model, layers)),),
        blocks=block_names(problem, homes, shape.mode, number, len(shape.seats)),
    )


def whole_tiles(model: ModelShape, layers: tuple[int, int]) -> int:
    """Tiles of the stage's MLPs, all on one device; the most of any layer."""
    mlps = [layer.mlp for layer in model.layers[slice(*layers)]]
    return max((mlp.num_tiles for mlp in mlps if isinstance(mlp, DenseMlp)), default=1)


def block_names(
    problem: Problem, homes: Mapping[str, int], mode: str, number: int, num_stages: int
) -> tuple[str, ...]:
    """Names of the blocks of a stage, in the manifest's order. `homes`: stages of free blocks."""
    last = num_stages - 1
    fixed = {"embed": 0, "head": 0 if mode == "first" else last}
    ends = {"first": 0, "last": last}
    return tuple(
        name for name, place in problem.places.items()
        if number == (fixed[name] if name in fixed else homes.get(name, ends.get(place)))
    )  # fmt: skip
