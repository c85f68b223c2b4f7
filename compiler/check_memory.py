"""Bytes of every device, summed again from the manifest's layers, and held against its budget."""

from collections.abc import Iterator

from plancc.compiler.check_buffers import buffer_bytes
from plancc.ir.buffers import Capacity, workspace_bytes
from plancc.ir.groups import holders
from plancc.ir.plan import Plan, Stage
from plancc.ir.sizes import (
    head_extra_bytes,
    layer_kv_bytes,
    layer_weight_bytes,
)
from plancc.ir.topology import Device, Topology


def memory_problems(plan: Plan, topology: Topology) -> Iterator[str]:
    for device in plan.devices:
        measured = topology.device(device.name)
        assert measured is not None
        facts = (
            ("host", measured.host, device.host),
            ("kind", measured.kind, device.kind),
            ("uuid", measured.uuid, device.uuid),
            ("budget_bytes", measured.free_bytes - measured.reserve_bytes, device.budget_bytes),
            ("reserve_bytes", measured.reserve_bytes, device.reserve_bytes),
        )
        for name, expected, found in facts:
            if expected != found:
                yield f"device {device.name} {name}: the topology says {expected}, found {found}"
        parts = device_parts(plan, topology, measured)
        for name, found in device.ledger.parts().items():
            if parts[name] != found:
                yield (
                    f"device {device.name} ledger.{name}: recomputed {parts[name]}, found {found}"
                )


def device_parts(plan: Plan, topology: Topology, measured: Device) -> dict[str, int]:
    """Bytes of one device by ledger column, without the two sums."""
    seats = [
        (index, number)
        for index, stage in enumerate(plan.stages)
        for number, rank in enumerate(stage.ranks)
        if rank.device == measured.name
    ]
    holding = [plan.stages[index] for index, number in seats if _holds_mixer(plan, index, number)]
    return {
        "weights": sum(_weight_bytes(plan, *seat) for seat in seats),
        "kv": sum(_kv_bytes(plan, stage) for stage in holding),
        "state": sum(_state_bytes(plan, stage) for stage in holding),
        "blocks": _block_bytes(plan, measured.name),
        "hop_buffers": buffer_bytes(plan, measured.name),
        "workspace": sum(_workspace_bytes(plan, *seat, measured) for seat in seats),
        "overhead": topology.opened_bytes(measured, plan.ask.workers),
    }


def room_left(plan: Plan, topology: Topology) -> dict[str, int]:
    """Free bytes of each device after this plan; negative where it does not fit."""
    left = {}
    for device in plan.devices:
        measured = topology.device(device.name)
        assert measured is not None
        total = sum(device_parts(plan, topology, measured).values())
        left[device.name] = measured.free_bytes - measured.reserve_bytes - total
    return left


def _layers(plan: Plan, stage: Stage) -> range:
    return range(*stage.layers)


def _holds_mixer(plan: Plan, index: int, number: int) -> bool:
    stage = plan.stages[index]
    return number in holders(stage.mixer, len(stage.ranks))


def _weight_bytes(plan: Plan, index: int, number: int) -> int:
    """Mixers, and the rank's tiles of each MLP; ranks that help an owner have only the tiles."""
    stage = plan.stages[index]
    share = None if stage.mixer == "single" else stage.ranks[number].mlp_tiles
    layers = [plan.model.layers[layer] for layer in _layers(plan, stage)]
    total = sum(layer_weight_bytes(layer, share) for layer in layers)
    if _holds_mixer(plan, index, number):
        return total
    return total - sum(layer.mixer.weight_bytes for layer in layers)


def _kv_bytes(plan: Plan, stage: Stage) -> int:
    run = plan.runtime
    return sum(
        layer_kv_bytes(
            plan.model,
            plan.model.layers[index],
            context=run.context,
            slots=run.slots,
            prefill_chunk=run.prefill_chunk,
            kv_dtype=run.kv_dtype,
        )
        for index in _layers(plan, stage)
    )


def _state_bytes(plan: Plan, stage: Stage) -> int:
    per_slot = [plan.model.layers[index].state_bytes_per_slot for index in _layers(plan, stage)]
    return plan.runtime.slots * sum(per_slot)


def _block_bytes(plan: Plan, name: str) -> int:
    """A tied head beside its embedding costs only what it has beyond it; away, a second copy."""
    here = [
        block for stage in plan.stages if stage.ranks[0].device == name for block in stage.blocks
    ]
    total = 0
    for block_name in here:
        block = plan.model.block(block_name)
        assert block is not None
        beside = plan.model.block("embed") if "embed" in here else None
        shares_matrix = block_name == "head" and block.tied_to == "embed" and beside is not None
        total += head_extra_bytes(block, beside) if shares_matrix else block.resident_bytes
    return total


def _workspace_bytes(plan: Plan, index: int, number: int, measured: Device) -> int:
    run, stage = plan.runtime, plan.stages[index]
    return workspace_bytes(
        plan.model,
        tuple(plan.model.layers[layer] for layer in _layers(plan, stage)),
        Capacity(run.slots, run.prefill_chunk, run.context),
        layout=measured.layout,
        has_head=number == 0 and "head" in stage.blocks,
    )
