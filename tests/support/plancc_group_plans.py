"""Plans of stages said by hand, groups among them, lowered and frozen as the compiler does it.

    plan = group_plan(manifest, [stage((0, 4), "a", "b", tiles=(9,), mixer="replicated"), ...])

Nothing is solved and nothing judged: see `ir.legality` and `compiler.check`.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

from plancc_builders import build_device, build_topology

from plancc.compiler.compilation import Compilation
from plancc.compiler.freeze import draft_plan, stamp
from plancc.compiler.passes.annotate import annotate
from plancc.compiler.passes.build import build
from plancc.compiler.passes.lower import lower
from plancc.compiler.passes.place import seated
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.graph import Graph
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan, Proof, Transport, Worker
from plancc.ir.topology import Topology
from plancc.ir.verify import verify

Mixer = Literal["single", "replicated", "owned"]
GIB = 2**30
PROOF = Proof(
    name="by hand", version="0", space="given", status="optimal", objective="latency", value=1,
    bound=1, best=1, best_bound=1, gap=0.0,
)  # fmt: skip


def stage(
    layers: tuple[int, int], *devices: str, tiles: Sequence[int] = (), mixer: Mixer = "single"
) -> PlacedStage:
    """A stage of devices; `tiles` has the border between each rank's share and the next one's."""
    runs = tuple(pairwise((0, *tiles, -1)))
    return PlacedStage(layers, devices, runs, mixer)


def cpu_topology(
    count: int, names: str = "cpu", *, size: int = GIB, threads: int = 1, **fields: Any
) -> Topology:
    """CPU devices cpu0, cpu1 ... of one host, each a process of its own."""
    devices = [build_device(f"{names}{i}", size, gb_s=8.0, kind="cpu", threads=threads)
               for i in range(count)]  # fmt: skip
    return build_topology(devices, latency_us=100.0, gb_s=2.0, mode="network", **fields)


def lowered(
    manifest: ModelManifest, topology: Topology, ask: Ask, stages: Sequence[PlacedStage],
    head: Literal["first", "last"] = "last",
) -> Compilation:  # fmt: skip
    """What the passes up to `lower` make of the stages, verified after each."""
    ask = ask.filled(manifest.max_context, manifest.dtype)
    state = annotate(build(Compilation(manifest, topology, ask)))
    placement = Placement(_whole(manifest, stages, head), ask.context or 0, PROOF)
    state = replace(state, graph=seated(state.graph, placement), placement=placement)
    verify(state.graph)
    state = lower(state)
    verify(state.graph)
    return state


def group_plan(
    manifest: ModelManifest,
    stages: Sequence[PlacedStage],
    *,
    topology: Topology | None = None,
    head: Literal["first", "last"] = "last",
    workers: Sequence[Sequence[str]] = (),
    workers_rule: str = "host",
    **ask: Any,
) -> Plan:
    """`workers` may put several devices into one process, which changes the links' transport;
    `workers_rule` is what the ask says of them."""
    if topology is None:
        names = {name for stage in stages for name in stage.devices}
        topology = cpu_topology(len(names))
    values = {"context": 64, "prefill_chunk": 16, "workers": workers_rule} | ask
    state = lowered(manifest, topology, Ask.model_validate(values), stages, head)
    plan = draft_plan(state)
    return stamp(_joined(plan, workers) if workers else plan)


def in_one_process(plan: Plan, transport: Transport = "local") -> Plan:
    """The plan with one worker for all devices, so that no process has to be started; its links go
    as said."""
    names = tuple(device.name for device in plan.devices)
    worker = plan.runtime.workers[0].model_copy(update={"devices": names})
    links = tuple(link.model_copy(update={"transport": transport}) for link in plan.links)
    runtime = plan.runtime.model_copy(update={"workers": (worker,)})
    return plan.model_copy(update={"runtime": runtime, "links": links})


def graph_of(manifest: ModelManifest, stages: Sequence[PlacedStage]) -> Graph:
    names = {name for stage in stages for name in stage.devices}
    return lowered(manifest, cpu_topology(len(names)), Ask(context=64), stages).graph


def _whole(
    manifest: ModelManifest, stages: Sequence[PlacedStage], head: str
) -> tuple[PlacedStage, ...]:
    """Blocks where they belong, and the last share up to the last tile."""
    mlp = manifest.layers[0].mlp
    tiles = mlp.num_tiles if isinstance(mlp, DenseMlp) else 1
    blocks: list[tuple[str, ...]] = [() for _ in stages]
    blocks[0] += ("embed",)
    blocks[0 if head == "first" else -1] += ("head",)
    return tuple(
        replace(
            item, tiles=tuple((a, tiles if b == -1 else b) for a, b in item.tiles), blocks=names
        )
        for item, names in zip(stages, blocks, strict=True)
    )


def _joined(plan: Plan, workers: Sequence[Sequence[str]]) -> Plan:
    homes = {name: index for index, names in enumerate(workers) for name in names}
    ranks = [rank.device for stage in plan.stages for rank in stage.ranks]
    made = tuple(
        Worker(name=f"h0.w{i}", host="h0", devices=tuple(names), threads=1)
        for i, names in enumerate(workers)
    )
    links = tuple(
        link.model_copy(
            update={"transport": "local" if homes[ranks[link.from_]] == homes[ranks[link.to]]
                    else "gloo"}
        )
        for link in plan.links
    )  # fmt: skip
    runtime = plan.runtime.model_copy(update={"workers": made})
    return plan.model_copy(update={"runtime": runtime, "links": links})
