"""Which processes the devices share, and so how each link of the plan carries its rows."""

from collections.abc import Sequence
from typing import Literal

from plancc.ir.graph import Graph
from plancc.ir.manifest import ModelShape
from plancc.ir.op import Op, OpKind, TransferAttrs
from plancc.ir.plan import PlanLink, Transport, Worker
from plancc.ir.sizes import LINK_SLOTS, hidden_row_bytes
from plancc.ir.topology import Device, Topology

STEP_ROW_BYTES = 8
WorkerRule = Literal["host", "device"]


def workers_of(devices: Sequence[Device], rule: WorkerRule) -> tuple[Worker, ...]:
    """Processes for the plan's devices, in their order; named h0.w0, h0.w1 by host.

    A device with `threads` is a process of its own. The others of one host and kind share one,
    unless each was asked to have its own.
    """
    groups: dict[tuple[str, ...], list[Device]] = {}
    for device in devices:
        alone = rule == "device" or device.threads is not None
        key = (device.host, device.kind, *([device.name] if alone else []))
        groups.setdefault(key, []).append(device)
    counts: dict[str, int] = {}
    workers = []
    for members in groups.values():
        host = members[0].host
        number = counts[host] = counts.get(host, -1) + 1
        workers.append(
            Worker(
                name=f"{host}.w{number}",
                host=host,
                devices=tuple(device.name for device in members),
                threads=members[0].threads,
            )
        )
    return tuple(workers)


def used_devices(names: Sequence[str], topology: Topology) -> tuple[Device, ...]:
    """The topology's devices that have a rank, in the topology's order."""
    return tuple(device for device in topology.devices if device.name in names)


def link_rows(
    graph: Graph, devices: Sequence[str], model: ModelShape, topology: Topology, rule: WorkerRule
) -> tuple[PlanLink, ...]:
    """The plan's links, one for each send of a lowered graph. `devices` has one name a rank."""
    workers = workers_of(used_devices(devices, topology), rule)
    homes = {name: worker.name for worker in workers for name in worker.devices}
    rows: dict[int, PlanLink] = {}
    for op in graph.ops:
        if op.kind is OpKind.SEND:
            attrs, source, target = _ends(graph, op)
            ends = (devices[source], devices[target])
            joined = homes[ends[0]] == homes[ends[1]]
            rows[attrs.link] = PlanLink.model_validate(
                {
                    "from": source,
                    "to": target,
                    "payload": attrs.payload,
                    "transport": _transport(attrs.payload, *ends, topology, rule, joined),
                    "bytes_per_row": _row_bytes(model, attrs.payload),
                    "slots": LINK_SLOTS,
                }
            )
    return tuple(rows[index] for index in range(len(rows)))


def _ends(graph: Graph, send: Op) -> tuple[TransferAttrs, int, int]:
    (recv,) = graph.consumers[send.name]
    assert isinstance(send.attrs, TransferAttrs)
    assert send.seat is not None
    assert recv.seat is not None
    return send.attrs, send.seat.rank, recv.seat.rank


def _row_bytes(model: ModelShape, payload: str) -> int:
    return STEP_ROW_BYTES if payload == "step" else hidden_row_bytes(model)


def _transport(
    payload: str, source: str, target: str, topology: Topology, rule: WorkerRule, joined: bool
) -> Transport:
    """Within a process as the topology measured the pair; between processes gloo, or NCCL where
    every process has one device and the pair was measured as device to device."""
    row = topology.link(source, target)
    mode = row.mode if row else "local"
    if payload == "step":
        return "local" if joined else "gloo"
    if joined:
        return mode if mode in ("p2p", "staged") else "local"
    return "nccl" if rule == "device" and mode in ("p2p", "staged") else "gloo"
