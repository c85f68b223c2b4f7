"""Full tensor parallelism: priced beside a plan, never placed (design.md section 11).

n devices; every kernel of a layer reads 1/n of its weights, and each device keeps 1/n of KV and
state. After the mixer and after the MLP the devices exchange fp32 partial rows:

layer    = max over devices of [each kernel at 1/n of its bytes and flops; KV and state / n;
           launches of mixer and MLP, and EXCHANGE_LAUNCHES an exchange]
           + 2 exchanges (1 where there is no MLP) of rows x hidden_size x 4 bytes a device
step     = layers + embed + head at 1/n; what all compute at once in a decode step takes as many
           times as long as the devices' row of exchanges says
bytes    = (weights + KV + state + embed + head) / n + other blocks + workspace
           + LINK_SLOTS x step rows x hidden_size x 4 bytes from each of n, a device
"""

from collections.abc import Sequence
from math import ceil

from plancc.compiler.cost.comm import transfers_ns
from plancc.compiler.cost.compute import (
    Work,
    embed_ns,
    kernel_ns,
    launch_ns,
    layer_parts_ns,
    mixer_ns,
    product_rows,
)
from plancc.compiler.cost.memory import blocks_bytes
from plancc.ir.ask import Ask
from plancc.ir.buffers import Capacity, Layout, workspace_bytes
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.groups import EXCHANGE_LAUNCHES, partial_row_bytes
from plancc.ir.kernel_spec import (
    HEAD_LAUNCHES,
    layer_flops_per_row,
    mixer_launches,
    mixer_reads,
    mlp_launches,
    mlp_reads,
)
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import LINK_SLOTS, layer_kv_bytes, step_rows
from plancc.ir.topology import Device, Topology


def full_tp_step_ns(model: ModelShape, topology: Topology, names: Sequence[str], work: Work) -> int:
    """ns of one step of `work` over the named devices (at least two), all cut evenly.

    A lower bound of what such an engine takes: heads and KV heads are taken to divide by n, and
    gathering the winners of a cut head is not counted.
    """
    assert len(names) > 1, "full TP needs at least two devices"
    devices = [_device(topology, name) for name in names]
    exchange = full_tp_exchange_ns(model, topology, names, work.rows)
    computing = sum(
        max(_layer_ns(model, device, index, work, len(names)) for device in devices)
        for index in range(len(model.layers))
    )
    computing += max(_ends_ns(model, device, work, len(names)) for device in devices)
    measured = topology.exchange(names)
    if measured is not None and work.prompt is None:
        computing = measured.at_once_ns(computing)
    return computing + exchange * sum(_exchanges(layer) for layer in model.layers)


def full_tp_exchange_ns(
    model: ModelShape, topology: Topology, names: Sequence[str], rows: int
) -> int:
    """ns of one exchange of so many rows: as measured for the group, else by its links.

    By links the cheaper of two ways: everything to everyone at once, or each device sums an n-th
    of the columns and sends that on, which is two steps of an n-th.
    """
    size, count = rows * partial_row_bytes(model, roots=1), len(names)
    measured = topology.exchange(names)
    if measured is not None:
        return measured.curve().ns(size)
    pairs = [(a, b) for a in names for b in names if a != b]
    at_once = transfers_ns(topology, [(a, b, size) for a, b in pairs])
    return min(at_once, 2 * transfers_ns(topology, [(a, b, ceil(size / count)) for a, b in pairs]))


def full_tp_bytes(model: ModelShape, ask: Ask, context: int, num_ranks: int, layout: Layout) -> int:
    """Bytes on each of n devices that lay out scratch so, overhead not counted. `ask` is filled."""
    kv_dtype, rows = ask.kv_dtype or model.dtype, step_rows(ask.slots, ask.prefill_chunk)
    cut = sum(
        layer.weight_bytes
        + ask.slots * layer.state_bytes_per_slot
        + layer_kv_bytes(model, layer, context=context, slots=ask.slots,
                         prefill_chunk=ask.prefill_chunk, kv_dtype=kv_dtype)
        for layer in model.layers
    )  # fmt: skip
    ends = [block.name for block in model.blocks if block.name in ("embed", "head")]
    others = [block for block in model.blocks
              if block.name not in (*ends, *ask.without)]  # fmt: skip
    cut += blocks_bytes(model, ends)
    whole = sum(block.resident_bytes for block in others)
    whole += workspace_bytes(model, model.layers,
                             Capacity(ask.slots, ask.prefill_chunk, context),
                             layout=layout, has_head=True)  # fmt: skip
    exchange = LINK_SLOTS * rows * num_ranks * partial_row_bytes(model, roots=1)
    return ceil(cut / num_ranks) + whole + exchange


def _exchanges(layer: Layer) -> int:
    return 1 if layer.mlp is None else 2


def _layer_ns(model: ModelShape, device: Device, index: int, work: Work, num_ranks: int) -> int:
    layer = model.layers[index]
    reads = (*mixer_reads(layer), *mlp_reads(layer, work.rows))
    said, whole = layer.flops_per_token is not None, sum(reads)
    flops = layer_flops_per_row(layer, ITEMSIZE[model.dtype]) * product_rows(device, work)
    kernels = sum(
        kernel_ns(device, size / num_ranks, work, model.dtype,
                  flops * size / whole / num_ranks if said and whole else -1)
        for size in reads
    )  # fmt: skip
    launches = mixer_launches(layer) + mlp_launches(layer) + _exchanges(layer) * EXCHANGE_LAUNCHES
    kept = _kept_ns(model, device, index, work)
    return kernels + ceil(kept / num_ranks) + launches * launch_ns(device)


def _kept_ns(model: ModelShape, device: Device, index: int, work: Work) -> int:
    """What the mixer takes besides its kernels: reading KV and state, or a prompt's attention."""
    with_kept = layer_parts_ns(model, device, index, work)[0]
    return with_kept - mixer_ns(model, device, model.layers[index], work)


def _ends_ns(model: ModelShape, device: Device, work: Work, num_ranks: int) -> int:
    """Embedding and head; of a prompt the head is not counted, as in other shapes."""
    head = model.block("head")
    embed = embed_ns(model, device)
    if head is None or work.prompt is not None:
        return embed
    kernel = kernel_ns(device, head.weight_bytes / num_ranks, work, model.dtype)
    return embed + kernel + HEAD_LAUNCHES * launch_ns(device)


def _device(topology: Topology, name: str) -> Device:
    device = topology.device(name)
    assert device is not None, f"no device {name} in {topology.name}"
    return device
