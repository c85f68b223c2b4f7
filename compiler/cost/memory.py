"""Bytes of every opened device, by what fills it (the terms: ir/sizes.py and ir/buffers.py)."""

import itertools
from collections.abc import Sequence

from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.ask import Ask
from plancc.ir.buffers import Capacity, workspace_bytes
from plancc.ir.groups import exchange_buffer_bytes, hop_buffer_ends
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Ledger
from plancc.ir.sizes import (
    head_extra_bytes,
    hop_buffer_bytes,
    layer_kv_bytes,
    layer_weight_bytes,
    step_rows,
)
from plancc.ir.topology import Device, Topology


def ledgers(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement
) -> dict[str, Ledger]:
    """The ledger of each device that a stage runs on, in stage order. `ask` is filled."""
    names = dict.fromkeys(name for stage in placement.stages for name in stage.devices)
    return {name: _ledger(model, topology, ask, placement, name) for name in names}


def _ledger(
    model: ModelShape, topology: Topology, ask: Ask, placement: Placement, name: str
) -> Ledger:
    device = topology.device(name)
    assert device is not None
    here = [stage for stage in placement.stages if name in stage.devices]
    parts = {
        "weights": sum(_weights(model, stage, name) for stage in here),
        "kv": sum(_kv(model, ask, placement.context, stage, name) for stage in here),
        "state": ask.slots * sum(_state(model, stage, name) for stage in here),
        "blocks": blocks_bytes(model, [b for stage in here if stage.devices[0] == name
                                       for b in stage.blocks]),
        "hop_buffers": _hop_buffers(model, ask, placement, name),
        "workspace": sum(_workspace(model, ask, placement.context, stage, device)
                         for stage in here),
        "overhead": topology.opened_bytes(device, ask.workers),
    }  # fmt: skip
    total = sum(parts.values())
    return Ledger(**parts, total=total, free_after=device.budget_bytes - total)


def blocks_bytes(model: ModelShape, names: Sequence[str]) -> int:
    """Bytes of the blocks that share a device; a tied head beside its embedding is not doubled."""
    total = 0
    for name in names:
        block = model.block(name)
        assert block is not None
        beside = model.block("embed") if name == "head" and "embed" in names else None
        total += head_extra_bytes(block, beside) if beside else block.resident_bytes
    return total


def _holds_mixer(stage: PlacedStage, name: str) -> bool:
    return stage.mixer != "owned" or stage.devices[0] == name


def _weights(model: ModelShape, stage: PlacedStage, name: str) -> int:
    layers = model.layers[slice(*stage.layers)]
    if stage.mixer == "single":
        return sum(layer_weight_bytes(layer) for layer in layers)
    share = stage.tiles[stage.devices.index(name)]
    whole = sum(layer_weight_bytes(layer, share) for layer in layers)
    return whole - (0 if _holds_mixer(stage, name) else sum(_uncut(layers)))


def _uncut(layers: Sequence[Layer]) -> list[int]:
    return [layer.mixer.weight_bytes for layer in layers]


def _kv(model: ModelShape, ask: Ask, context: int, stage: PlacedStage, name: str) -> int:
    if not _holds_mixer(stage, name):
        return 0
    return sum(
        layer_kv_bytes(model, layer, context=context, slots=ask.slots,
                       prefill_chunk=ask.prefill_chunk, kv_dtype=ask.kv_dtype or model.dtype)
        for layer in model.layers[slice(*stage.layers)]
    )  # fmt: skip


def _state(model: ModelShape, stage: PlacedStage, name: str) -> int:
    layers = model.layers[slice(*stage.layers)]
    return sum(layer.state_bytes_per_slot for layer in layers) if _holds_mixer(stage, name) else 0


def _hop_buffers(model: ModelShape, ask: Ask, placement: Placement, name: str) -> int:
    """Hidden rows that arrive and leave, and the partial rows of a group's exchange."""
    rows = step_rows(ask.slots, ask.prefill_chunk)
    ends = sum(_buffer_ends(placement, number, name) for number in range(len(placement.stages)))
    ends -= _self_hops(placement, name)
    exchanged = sum(
        exchange_buffer_bytes(model, rows, stage.tiles, stage.mixer, stage.devices.index(name))
        for stage in placement.stages if name in stage.devices
    )  # fmt: skip
    return ends * hop_buffer_bytes(model, rows) + exchanged


def _buffer_ends(placement: Placement, number: int, name: str) -> int:
    stage = placement.stages[number]
    if name not in stage.devices:
        return 0
    return hop_buffer_ends(
        stage.mixer, len(stage.devices), stage.devices.index(name), stage=number,
        num_stages=len(placement.stages), head_first=placement.head_stage == 0,
    )  # fmt: skip


def _self_hops(placement: Placement, name: str) -> int:
    """Hops between two seats of one device: both ends are one buffer."""
    firsts = [stage.devices[0] for stage in placement.stages]
    links = list(itertools.pairwise(firsts))
    if len(firsts) > 1 and placement.head_stage == 0:
        links.append((firsts[-1], firsts[0]))
    return links.count((name, name))


def _workspace(
    model: ModelShape, ask: Ask, context: int, stage: PlacedStage, device: Device
) -> int:
    layers = model.layers[slice(*stage.layers)]
    has_head = "head" in stage.blocks and stage.devices[0] == device.name
    capacity = Capacity(ask.slots, ask.prefill_chunk, context)
    return workspace_bytes(model, layers, capacity, layout=device.layout, has_head=has_head)
