"""One layer moved over each cut, either way: what it would cost, or where it does not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plancc.compiler.explain_price import lack, placement_of, worth
from plancc.compiler.explain_room import next_cut
from plancc.compiler.placement.placement import Placement
from plancc.compiler.summary import layer_range
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology


@dataclass(frozen=True)
class Move:
    """Layers over one cut; `delta_ns` of what shapes are compared by, None where it fails."""

    layers: tuple[int, int]
    source: str
    target: str
    delta_ns: int | None
    device: str | None = None  # that lacks `short_bytes`
    short_bytes: int | None = None
    note: str | None = None

    @property
    def words(self) -> str:
        one = self.layers[1] - self.layers[0] == 1
        return (
            f"layer{'' if one else 's'} {layer_range(self.layers)}: {self.source} -> {self.target}"
        )


def moves_of(plan: Plan, topology: Topology) -> tuple[Move, ...]:
    """At each cut in order: the layer before it to the right, then the one after it to the left."""
    base = placement_of(plan)
    value = worth(plan.model, topology, plan.ask, base)
    return tuple(
        move
        for number in range(1, len(base.stages))
        for step in (-1, 1)
        for move in _move(plan, topology, base, value, number, step)
    )


def _move(
    plan: Plan, topology: Topology, base: Placement, value: int, number: int, step: int
) -> Iterator[Move]:
    left, right = base.stages[number - 1], base.stages[number]
    cut = right.layers[0]
    target = next_cut(plan.model, cut, step)
    if target is None or not left.layers[0] < target < right.layers[1]:
        return  # a stage would be left without layers
    layers = (min(cut, target), max(cut, target))
    giver, taker = (left, right) if step < 0 else (right, left)
    move = Move(layers, "+".join(giver.devices), "+".join(taker.devices), None)
    if taker.mixer != "single" and not _is_cut(plan.model, layers, taker.tiles[-1][1]):
        yield replace(move, note="its MLP is not cut in such tiles")
        return
    edited = _with_cut(base, number, target)
    missing = lack(plan.model, topology, plan.ask, edited)
    if missing is not None:
        yield replace(move, device=missing[0], short_bytes=missing[1])
        return
    yield replace(move, delta_ns=worth(plan.model, topology, plan.ask, edited) - value)


def _with_cut(base: Placement, number: int, cut: int) -> Placement:
    stages = list(base.stages)
    stages[number - 1] = replace(stages[number - 1], layers=(stages[number - 1].layers[0], cut))
    stages[number] = replace(stages[number], layers=(cut, stages[number].layers[1]))
    return replace(base, stages=tuple(stages))


def _is_cut(model: ModelShape, layers: tuple[int, int], tiles: int) -> bool:
    mlps = [layer.mlp for layer in model.layers[slice(*layers)]]
    return all(isinstance(mlp, DenseMlp) and mlp.num_tiles == tiles for mlp in mlps)
