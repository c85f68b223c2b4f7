"""place: ask the solver, and give every op its seat; a TP group's ops once for each rank.

    before  %l7.mixer = mixer(%l7.norm1) {...} : 512x4096xbfloat16
    after   %l7.mixer = mixer(%l7.norm1) {...} : 512x4096xbfloat16 @s1.r1
            %l7.mixer.r2 = mixer(%l7.norm1.r2) {...} : 512x4096xbfloat16 @s1.r2

A replica is named by its rank; the lead's ops keep their names. An MLP has its rank's tiles.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plancc.compiler.compilation import Compilation
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.graph import Graph
from plancc.ir.groups import holders
from plancc.ir.op import AddAttrs, EmbedAttrs, MixerAttrs, MlpAttrs, NormAttrs, Op, OpKind, Seat


def place(state: Compilation) -> Compilation:
    """Raises DoesNotFit with numbers, BadInput for a pin or device that does not exist."""
    from plancc.compiler.placement.place import place as solve  # the solver is slow to import

    placement = solve(state.manifest.shape(), state.topology, state.ask)
    return replace(state, graph=seated(state.graph, placement), placement=placement)


def seated(graph: Graph, placement: Placement) -> Graph:
    """Every op on each rank that computes it; the last norm, head and sample with the head."""
    seating = _Seating(graph, placement, first_ranks(placement))
    return Graph(tuple(new for op in graph.ops for new in seating.copies(op)), graph.outputs)


def first_ranks(placement: Placement) -> tuple[int, ...]:
    """The rank that each stage begins with; ranks are numbered through the stages."""
    sizes = [len(stage.devices) for stage in placement.stages]
    return tuple(sum(sizes[:index]) for index in range(len(sizes)))


@dataclass(frozen=True)
class _Seating:
    graph: Graph
    placement: Placement
    firsts: tuple[int, ...]

    def copies(self, op: Op) -> Iterator[Op]:
        """The op on each of its ranks; the lead's last where it sends the others what they read."""
        index = self._stage_of(op)
        stage, numbers = self.placement.stages[index], list(self._numbers(op))
        if any(self._is_sent(self.graph.by_name[name], op) for name in op.inputs):
            numbers = [*numbers[1:], 0]
        for number in numbers:
            yield replace(
                op,
                name=self._name(op, number),
                inputs=tuple(self._input(name, number) for name in op.inputs),
                attrs=_with_tiles(op.attrs, stage, number) if isinstance(op.attrs, MlpAttrs)
                else op.attrs,
                seat=Seat(index, self.firsts[index] + number),
            )  # fmt: skip

    def _is_sent(self, source: Op, op: Op) -> bool:
        is_inside = self._stage_of(source) == self._stage_of(op)
        return is_inside and len(self._numbers(source)) < len(self._numbers(op))

    def _stage_of(self, op: Op) -> int:
        if isinstance(op.attrs, EmbedAttrs):
            return 0
        layer = _layer_of(op)
        if layer is None:
            return self.placement.head_stage
        stages = enumerate(self.placement.stages)
        return next(index for index, stage in stages if stage.layers[0] <= layer < stage.layers[1])

    def _numbers(self, op: Op) -> range:
        """Ranks of its stage that compute the op, counted from the lead."""
        stage = self.placement.stages[self._stage_of(op)]
        if op.kind is OpKind.MLP:
            return range(len(stage.devices))
        return range(1) if _layer_of(op) is None else holders(stage.mixer, len(stage.devices))

    def _name(self, op: Op, number: int) -> str:
        return f"{op.name}.r{self.firsts[self._stage_of(op)] + number}" if number else op.name

    def _input(self, name: str, number: int) -> str:
        """The input as this rank has it or its peer does (ir.groups.hop_pairs)."""
        source = self.graph.by_name[name]
        return self._name(source, number % len(self._numbers(source)))


def _layer_of(op: Op) -> int | None:
    layered = isinstance(op.attrs, NormAttrs | MixerAttrs | MlpAttrs | AddAttrs)
    return op.attrs.layer if layered else None  # type: ignore[union-attr]


def _with_tiles(attrs: MlpAttrs, stage: PlacedStage, number: int) -> MlpAttrs:
    """The rank's share; an MLP that is never cut keeps its one tile."""
    return attrs if stage.mixer == "single" else replace(attrs, tiles=stage.tiles[number])
