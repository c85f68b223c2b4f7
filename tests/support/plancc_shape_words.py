"""Shapes in the words of the brute force and of the compiler, each turned into the other."""

from dataclasses import replace

from plancc_bruteforce import BruteForce, Candidate, Search
from plancc_bruteforce_bytes import Group

from plancc.compiler.compilation import Compilation
from plancc.compiler.freeze import draft_plan, stamp
from plancc.compiler.passes.annotate import annotate
from plancc.compiler.passes.build import build
from plancc.compiler.passes.lower import lower
from plancc.compiler.passes.place import seated
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest, ModelShape
from plancc.ir.plan import Plan, Proof
from plancc.ir.topology import Topology
from plancc.ir.verify import verify


def candidate_of(oracle: BruteForce, placement: Placement) -> Candidate:
    """Only blocks that may lie anywhere have homes; a single device deals no tiles."""
    stages = placement.stages
    homes = {name: index for index, stage in enumerate(stages) for name in stage.blocks}
    first = len(stages) > 1 and "head" in stages[0].blocks
    return Candidate(
        groups=tuple(Group(stage.devices, stage.mixer) for stage in stages),
        cuts=(0, *(stage.layers[1] for stage in stages)),
        tiles=tuple(stage.tiles if len(stage.devices) > 1 else () for stage in stages),
        head="first" if first else "last",
        homes=tuple(homes[name] for name in oracle.free),
    )


def lowered_plan(manifest: ModelManifest, topology: Topology, ask: Ask, shape: Candidate) -> Plan:
    """The plan that the passes make of a given shape, in place of the solver's. `ask` is filled.

    The value in its proof is the brute force's.
    """
    placement = placement_of(BruteForce(manifest.shape(), topology, ask), shape)
    state = annotate(build(Compilation(manifest=manifest, topology=topology, ask=ask)))
    state = lower(replace(state, graph=seated(state.graph, placement), placement=placement))
    verify(state.graph)
    return stamp(draft_plan(state))


def value_of(oracle: BruteForce, shape: Candidate) -> int:
    search, count = Search(oracle, oracle.ask.context or 1), len(shape.groups)
    times = []
    for stage, (group, tiles) in enumerate(zip(shape.groups, shape.tiles, strict=True)):
        role = search.role(shape.groups, shape.head, shape.homes, stage)
        what = (group, tiles, (shape.cuts[stage], shape.cuts[stage + 1]), role)
        times.append(search.sums(count).compute(*what) + search.sums(count).exchanged(*what))
    return search.value(shape.groups, times, search.hops(shape.groups, shape.head))


def placement_of(oracle: BruteForce, shape: Candidate) -> Placement:
    model, ask, value = oracle.model, oracle.ask, value_of(oracle, shape)
    stages = []
    for stage, (group, tiles) in enumerate(zip(shape.groups, shape.tiles, strict=True)):
        layers, last = (shape.cuts[stage], shape.cuts[stage + 1]), len(shape.groups) - 1
        blocks = [*(["embed"] if stage == 0 and model.block("embed") else []),
                  *oracle.blocks_at(stage, last + 1, shape.homes)]  # fmt: skip
        if model.block("head") and stage == (0 if shape.head == "first" else last):
            blocks.append("head")
        dealt = tiles or ((0, _whole_tiles(model, layers)),)
        stages.append(PlacedStage(layers, group.devices, dealt, group.mixer, tuple(blocks)))
    proof = Proof(name="dice", version="0", space="one", status="optimal", gap=0.0,
                  objective=ask.objective, value=value, bound=value, best=value,
                  best_bound=value)  # fmt: skip
    return Placement(tuple(stages), ask.context or 1, proof)


def _whole_tiles(model: ModelShape, layers: tuple[int, int]) -> int:
    mlps = [layer.mlp for layer in model.layers[slice(*layers)]]
    return max((mlp.num_tiles for mlp in mlps if isinstance(mlp, DenseMlp)), default=1)
