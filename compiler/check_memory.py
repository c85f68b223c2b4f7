"""Bytes of every device, summed again from the manifest's layers, and held against its budget."""

from collections.abc import Iterator

from plancc.ir.buffers import workspace_bytes
from plancc.ir.plan import Plan, Stage
from plancc.ir.sizes import (
    head_extra_bytes,
    hop_buffer_bytes,
    layer_kv_bytes,
    layer_weight_bytes,
    step_rows,
)
from plancc.ir.topology import Topology


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
        parts = device_parts(plan, device.name, measured.overhead_bytes)
        for name, found in device.ledger.parts().items():
            if parts[name] != found:
                yield (
                    f"device {device.name} ledger.{name}: recomputed {parts[name]}, found {found}"
                )


def device_parts(plan: Plan, name: str, overhead_bytes: int) -> dict[str, int]:
    """Bytes of one device by ledger column, without the two sums."""
    here = [stage for stage in plan.stages if any(rank.device == name for rank in stage.ranks)]
    return {
        "weights": sum(_weight_bytes(plan, stage, name) for stage in here),
        "kv": sum(_kv_bytes(plan, stage) for stage in here),
        "state": sum(_state_bytes(plan, stage) for stage in here),
        "blocks": _block_bytes(plan, name),
        "hop_buffers": _hop_bytes(plan, name),
        "workspace": sum(_workspace_bytes(plan, stage) for stage in here),
        "overhead": overhead_bytes,
    }


def room_left(plan: Plan, topology: Topology) -> dict[str, int]:
    """Free bytes of each device after this plan; negative where it does not fit."""
    left = {}
    for device in plan.devices:
        measured = topology.device(device.name)
        assert measured is not None
        total = sum(device_parts(plan, device.name, measured.overhead_bytes).values())
        left[device.name] = measured.free_bytes - measured.reserve_bytes - total
    return left


def _layers(plan: Plan, stage: Stage) -> range:
    return range(*stage.layers)


def _weight_bytes(plan: Plan, stage: Stage, name: str) -> int:
    shares = [None if stage.mixer == "single" else rank.mlp_tiles
              for rank in stage.ranks if rank.device == name]  # fmt: skip
    layers = [plan.model.layers[index] for index in _layers(plan, stage)]
    return sum(layer_weight_bytes(layer, share) for share in shares for layer in layers)


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


def _hop_bytes(plan: Plan, name: str) -> int:
    """One buffer for each end of a hidden-row link; a link from a device to itself has one pair."""
    run, ends = plan.runtime, 0
    for link in plan.links:
        if link.payload == "hidden":
            touched = {plan.programs[link.from_].device, plan.programs[link.to].device}
            ends += name in touched
    return ends * hop_buffer_bytes(plan.model, step_rows(run.slots, run.prefill_chunk))


def _workspace_bytes(plan: Plan, stage: Stage) -> int:
    run = plan.runtime
    return workspace_bytes(
        plan.model,
        tuple(plan.model.layers[index] for index in _layers(plan, stage)),
        step_rows(run.slots, run.prefill_chunk),
        has_head="head" in stage.blocks,
        slots=run.slots,
    )
