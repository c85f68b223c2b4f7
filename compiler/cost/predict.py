"""What a placement is predicted to take: a decode step, and a prompt in chunks."""

import itertools

from plancc.compiler.cost.beats import beat_ns, prompt_beats
from plancc.compiler.cost.comm import return_ns, transfers_ns
from plancc.compiler.cost.compute import Work, embed_ns, head_ns
from plancc.compiler.cost.groups import Group, exchange_ns, group_layer_ns, spread_ns
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.groups import hop_pairs
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Predicted, PrefillTime, StageTime, StepTime
from plancc.ir.sizes import hidden_row_bytes
from plancc.ir.topology import Device, Topology


def predict(model: ModelShape, topology: Topology, ask: Ask, placement: Placement) -> Predicted:
    """Times of one decode row at the placement's context, and of the asked prompt."""
    return Predicted(
        decode=_decode(model, topology, ask, placement),
        prefill=_prefill(model, topology, ask, placement),
    )


def stage_times(
    model: ModelShape, topology: Topology, placement: Placement, work: Work
) -> tuple[StageTime, ...]:
    """Compute, exchanges and outgoing hop of every stage, for one step of decode or prompt rows.

    The head is counted in decode only: of a prompt it sees one row of the last chunk.
    """
    hops = _hops(model, topology, placement, work.rows)
    return tuple(
        _stage_time(model, topology, placement, number, work, hop)
        for number, hop in enumerate(hops)
    )


def _stage_time(
    model: ModelShape, topology: Topology, placement: Placement, number: int, work: Work, hop: int
) -> StageTime:
    stage = placement.stages[number]
    group, layers = _group(topology, stage), range(*stage.layers)
    lead = group.devices[0]
    compute = sum(
        group_layer_ns(model, topology, group, stage.tiles, index, work) for index in layers
    )
    compute += embed_ns(model, lead) if number == 0 else 0
    if number == placement.head_stage and work.prompt is None:
        compute += head_ns(model, lead, work)
    exchange = len(layers) * exchange_ns(model, topology, group, stage.tiles, work.rows)
    exchange += spread_ns(model, topology, group, work.rows) if number == 0 else 0
    return StageTime(compute_ns=compute, exchange_ns=exchange, hop_ns=hop)


def _decode(model: ModelShape, topology: Topology, ask: Ask, placement: Placement) -> StepTime:
    work = Work(1, placement.context, ask.kv_dtype or model.dtype)
    stages = stage_times(model, topology, placement, work)
    step = sum(stage.compute_ns + stage.exchange_ns + stage.hop_ns for stage in stages)
    return StepTime(step_ns=step, tokens_per_s=_rate(1, step), stages=stages)


def _prefill(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement
) -> PrefillTime | None:
    """(chunks + devices - 1) beats, see `beats`; None without a matmul rate."""
    assert ask.prompt is not None
    prompt = ask.prompt
    rows = min(ask.prefill_chunk, prompt)
    names = [name for stage in placement.stages for name in stage.devices]
    if any(_device(topology, name).matmul_tflops(rows, model.dtype) is None for name in names):
        return None
    work = Work(rows, placement.context, ask.kv_dtype or model.dtype, prompt)
    stages = stage_times(model, topology, placement, work)
    chunks = -(-prompt // rows)
    devices = [stage.devices for stage in placement.stages]
    total = prompt_beats(chunks, [names[0] for names in devices]) * beat_ns(devices, stages)
    return PrefillTime(prompt=prompt, chunks=chunks, total_ns=total,
                       tokens_per_s=_rate(prompt, total), stages=stages)  # fmt: skip


def _hops(
    model: ModelShape, topology: Topology, placement: Placement, rows: int
) -> tuple[int, ...]:
    """ns that each stage spends sending: to the next, and from the last one back to the first."""
    stages, size = placement.stages, rows * hidden_row_bytes(model)
    if len(stages) == 1:
        return (0,)
    forward = [_hop_ns(topology, one, two, size) for one, two in itertools.pairwise(stages)]
    head_first = placement.head_stage == 0
    ends = (stages[-1].devices[0], stages[0].devices[0])
    return (*forward, return_ns(topology, *ends, size, head_first=head_first))


def _hop_ns(topology: Topology, sender: PlacedStage, target: PlacedStage, size: int) -> int:
    """Every rank of the target that holds rows gets them from its peer."""
    pairs = hop_pairs((sender.mixer, len(sender.devices)), (target.mixer, len(target.devices)))
    return transfers_ns(topology, [(sender.devices[a], target.devices[b], size) for a, b in pairs])


def _group(topology: Topology, stage: PlacedStage) -> Group:
    return Group(tuple(_device(topology, name) for name in stage.devices), stage.mixer)


def _device(topology: Topology, name: str) -> Device:
    device = topology.device(name)
    assert device is not None, f"no device {name} in {topology.name}"
    return device


def _rate(tokens: int, time_ns: int) -> float:
    return round(tokens * 1e9 / time_ns, 2) if time_ns else 0.0
