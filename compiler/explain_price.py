"""What a given placement is worth, and what it lacks: priced, not solved."""

from plancc.compiler.cost.beats import beat_ns
from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.memory import ledgers
from plancc.compiler.cost.predict import predict, stage_times
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology


def placement_of(plan: Plan) -> Placement:
    """The shape that a plan holds, as the solver would have given it."""
    stages = tuple(
        PlacedStage(
            layers=stage.layers,
            devices=tuple(rank.device for rank in stage.ranks),
            tiles=tuple(rank.mlp_tiles for rank in stage.ranks),
            mixer=stage.mixer,
            blocks=stage.blocks,
        )
        for stage in plan.stages
    )
    return Placement(stages=stages, context=plan.runtime.context, proof=plan.provenance.solver)


def worth(model: ModelShape, topology: Topology, ask: Ask, placement: Placement) -> int:
    """ns by which shapes are compared: of the objective, and of a decode step for `context`."""
    if ask.workload is not None:
        return _request_ns(model, topology, ask, placement)
    if ask.objective == "throughput":
        return _round_ns(model, topology, ask, placement, ask.slots)
    predicted = predict(model, topology, ask, placement)
    if ask.objective == "prefill":
        assert predicted.prefill is not None
        return predicted.prefill.total_ns
    return predicted.decode.step_ns


def _request_ns(model: ModelShape, topology: Topology, ask: Ask, placement: Placement) -> int:
    """What one request of the workload takes: its prompt, then a round for each token."""
    work = ask.workload
    assert work is not None
    prompted = ask.model_copy(update={"prompt": work.prompt})
    prefill = predict(model, topology, prompted, placement).prefill
    assert prefill is not None, "a workload is placed where matmul rates are known"
    turn = _round_ns(model, topology, ask, placement, work.streams)
    return prefill.total_ns + work.output * turn


def _round_ns(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement, streams: int
) -> int:
    """The ns in which every stream advances by one token."""
    count = len(placement.stages)
    rows, in_flight = -(-streams // count), min(streams, count)
    work = Work(rows, placement.context, ask.kv_dtype or model.dtype)
    times = stage_times(model, topology, placement, work)
    total = sum(time.compute_ns + time.exchange_ns + time.hop_ns for time in times)
    return max(in_flight * beat_ns([stage.devices for stage in placement.stages], times), total)


def lack(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement
) -> tuple[str, int] | None:
    """(device, bytes) that the placement lacks most; None where it fits."""
    sums = ledgers(model, topology, ask, placement)
    name = min(sums, key=lambda device: sums[device].free_after)
    return (name, -sums[name].free_after) if sums[name].free_after < 0 else None
