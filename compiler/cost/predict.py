"""What a placement is predicted to take: a decode step, and a prompt in chunks."""

import itertools

from plancc.compiler.cost.comm import hop_ns, return_ns
from plancc.compiler.cost.compute import (
    Work,
    decode_layer_ns,
    embed_ns,
    head_ns,
    prompt_layer_ns,
)
from plancc.compiler.placement.placement import Placement
from plancc.ir.ask import Ask
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


def decode_stages(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement, rows: int
) -> tuple[StageTime, ...]:
    """Compute and outgoing hop of every stage, for a step of so many rows."""
    work = Work(rows, placement.context, ask.kv_dtype or model.dtype)
    hops = _hops(model, topology, placement, rows)
    times = []
    for number, stage in enumerate(placement.stages):
        device = _device(topology, stage.devices[0])
        compute = sum(decode_layer_ns(model, device, i, work) for i in range(*stage.layers))
        compute += embed_ns(model, device) if number == 0 else 0
        compute += head_ns(model, device, work) if number == placement.head_stage else 0
        times.append(StageTime(compute_ns=compute, hop_ns=hops[number]))
    return tuple(times)


def _decode(model: ModelShape, topology: Topology, ask: Ask, placement: Placement) -> StepTime:
    stages = decode_stages(model, topology, ask, placement, rows=1)
    step = sum(stage.compute_ns + stage.hop_ns for stage in stages)
    return StepTime(step_ns=step, tokens_per_s=_rate(1, step), stages=stages)


def _prefill(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement
) -> PrefillTime | None:
    """(chunks + stages - 1) beats of the slowest stage or hop; None without a matmul rate."""
    assert ask.prompt is not None
    prompt = ask.prompt
    rows = min(ask.prefill_chunk, prompt)
    names = [stage.devices[0] for stage in placement.stages]
    if any(_device(topology, name).matmul_tflops(rows, model.dtype) is None for name in names):
        return None
    stages = prompt_stages(model, topology, ask, placement, rows)
    chunks = -(-prompt // rows)
    beat = max(max(stage.compute_ns, stage.hop_ns) for stage in stages)
    total = (chunks + len(stages) - 1) * beat
    return PrefillTime(prompt=prompt, chunks=chunks, total_ns=total,
                       tokens_per_s=_rate(prompt, total), stages=stages)  # fmt: skip


def prompt_stages(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement, rows: int
) -> tuple[StageTime, ...]:
    """Compute and outgoing hop of every stage, for a chunk of so many prompt rows."""
    work = Work(rows, placement.context, ask.kv_dtype or model.dtype)
    hops = _hops(model, topology, placement, rows)
    times = []
    for number, stage in enumerate(placement.stages):
        device = _device(topology, stage.devices[0])
        layers = range(*stage.layers)
        compute = sum(prompt_layer_ns(model, device, i, work, ask.prompt or 1) for i in layers)
        compute += embed_ns(model, device) if number == 0 else 0
        times.append(StageTime(compute_ns=compute, hop_ns=hops[number]))
    return tuple(times)


def _hops(
    model: ModelShape, topology: Topology, placement: Placement, rows: int
) -> tuple[int, ...]:
    """ns that each stage spends sending: to the next, and from the last one back to the first."""
    names, size = [s.devices[0] for s in placement.stages], rows * hidden_row_bytes(model)
    if len(names) == 1:
        return (0,)
    forward = [hop_ns(topology, a, b, size) for a, b in itertools.pairwise(names)]
    head_first = placement.head_stage == 0
    back = return_ns(topology, names[-1], names[0], size, head_first=head_first)
    return (*forward, back)


def _device(topology: Topology, name: str) -> Device:
    device = topology.device(name)
    assert device is not None, f"no device {name} in {topology.name}"
    return device


def _rate(tokens: int, time_ns: int) -> float:
    return round(tokens * 1e9 / time_ns, 2) if time_ns else 0.0
