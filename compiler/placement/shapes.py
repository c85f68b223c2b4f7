"""From a shape of the solver to the stages of a placement."""

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.placement import PlacedStage
from plancc.compiler.placement.problem import Problem
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape


def placed_stages(problem: Problem, shape: Shape) -> tuple[PlacedStage, ...]:
    return tuple(_stage(problem, shape, number) for number in range(len(shape.seats)))


def _stage(problem: Problem, shape: Shape, number: int) -> PlacedStage:
    layers = (shape.cuts[number], shape.cuts[number + 1])
    return PlacedStage(
        layers=layers,
        devices=(problem.seats[shape.seats[number]],),
        tiles=((0, _tiles(problem.model, layers)),),
        blocks=_blocks(problem, shape, number),
    )


def _tiles(model: ModelShape, layers: tuple[int, int]) -> int:
    mlps = [layer.mlp for layer in model.layers[slice(*layers)]]
    return max((mlp.num_tiles for mlp in mlps if isinstance(mlp, DenseMlp)), default=1)


def _blocks(problem: Problem, shape: Shape, number: int) -> tuple[str, ...]:
    """Names of the blocks of a stage, in the manifest's order."""
    last = len(shape.seats) - 1
    free = {block.name: shape.block_stages[k] for k, block in enumerate(problem.free_blocks)}
    homes = {"first": 0, "last": last}
    return tuple(
        name for name, place in problem.places.items()
        if number == _home(name, place, free, homes, 0 if shape.mode == "first" else last)
    )  # fmt: skip


def _home(
    name: str, place: str, free: dict[str, int], homes: dict[str, int], head_stage: int
) -> int:
    if name == "head":
        return head_stage
    if name == "embed":
        return 0
    return free[name] if name in free else homes[place]
