"""place: ask the solver, and give every op its seat.

before  %l7.mixer = mixer(%l7.norm1) {...} : 512x4096xbfloat16
after   %l7.mixer = mixer(%l7.norm1) {...} : 512x4096xbfloat16 @s1.r1
"""

from dataclasses import replace

from plancc.compiler.compilation import Compilation
from plancc.compiler.placement.placement import Placement
from plancc.ir.graph import Graph
from plancc.ir.op import AddAttrs, EmbedAttrs, MixerAttrs, MlpAttrs, NormAttrs, Op, Seat


def place(state: Compilation) -> Compilation:
    """Raises DoesNotFit with numbers, BadInput for a pin or device that does not exist."""
    from plancc.compiler.placement.place import place as solve  # the solver is slow to import

    placement = solve(state.manifest.shape(), state.topology, state.ask)
    return replace(state, graph=seated(state.graph, placement), placement=placement)


def seated(graph: Graph, placement: Placement) -> Graph:
    """Every op on the first rank of its stage; the last norm, head and sample with the head."""
    stages = {
        layer: index
        for index, stage in enumerate(placement.stages)
        for layer in range(*stage.layers)
    }
    ranks = first_ranks(placement)

    def stage_of(op: Op) -> int:
        if isinstance(op.attrs, EmbedAttrs):
            return 0
        layered = isinstance(op.attrs, NormAttrs | MixerAttrs | MlpAttrs | AddAttrs)
        layer = op.attrs.layer if layered else None  # type: ignore[union-attr]
        return placement.head_stage if layer is None else stages[layer]

    return graph.map(lambda op: replace(op, seat=Seat(stage_of(op), ranks[stage_of(op)])))


def first_ranks(placement: Placement) -> tuple[int, ...]:
    """The rank that each stage begins with; ranks are numbered through the stages."""
    sizes = [len(stage.devices) for stage in placement.stages]
    return tuple(sum(sizes[:index]) for index in range(len(sizes)))
