"""Which processes the devices share, and so how each link of the plan carries its rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from plancc.ir.graph import Graph
from plancc.ir.groups import partial_row_bytes
from plancc.ir.manifest import ModelShape
from plancc.ir.op import ExchangeAttrs, MlpAttrs, Op, OpKind, TransferAttrs
from plancc.ir.plan import PlanLink, Transport, Worker
from plancc.ir.sizes import LINK_SLOTS, hidden_row_bytes
from plancc.ir.tiles import subtree_roots
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
    """The devices that have a rank, by name: the order of a file's rows decides nothing."""
    return tuple(sorted((device for device in topology.devices if device.name in names),
                        key=lambda device: device.name))  # fmt: skip


def link_rows(
    graph: Graph, devices: Sequence[str], model: ModelShape, topology: Topology, rule: WorkerRule
) -> tuple[PlanLink, ...]:
    """The plan's links: those of the sends, then partial rows. `devices` has one name a rank."""
    workers = workers_of(used_devices(devices, topology), rule)
    homes = {name: worker.name for worker in workers for name in worker.devices}
    rows: dict[int, _Row] = {}
    for op in graph.ops:
        if op.kind is OpKind.SEND:
            attrs, source, target = _ends(graph, op)
            size = _row_bytes(model, attrs.payload)
            rows[attrs.link] = _Row(source, target, attrs.payload, size)
    links = []
    for row in (*(rows[index] for index in range(len(rows))), *_partial_rows(graph, model)):
        ends = (devices[row.source], devices[row.target])
        joined = homes[ends[0]] == homes[ends[1]]
        links.append(
            PlanLink.model_validate(
                {
                    "from": row.source,
                    "to": row.target,
                    "payload": row.payload,
                    "transport": _transport(row.payload, *ends, topology, rule, joined),
                    "bytes_per_row": row.bytes,
                    "slots": LINK_SLOTS,
                }
            )
        )
    return tuple(links)


@dataclass(frozen=True)
class _Row:
    source: int
    target: int
    payload: Literal["hidden", "partial", "step"]
    bytes: int


def _partial_rows(graph: Graph, model: ModelShape) -> Iterator[_Row]:
    """Once a stage: from each rank of an exchange to every other whose sum is read."""
    done: set[tuple[int, ...]] = set()
    for op in graph.ops:
        if not isinstance(op.attrs, ExchangeAttrs) or op.attrs.ranks in done:
            continue
        done.add(op.attrs.ranks)
        alike = [other for other in graph.ops if other.attrs == op.attrs]
        targets = [other.seat.rank for other in alike if other.seat and graph.consumers[other.name]]
        for source in alike:
            mlp = graph.by_name[source.inputs[0]].attrs
            assert isinstance(mlp, MlpAttrs)
            assert source.seat is not None
            size = partial_row_bytes(model, len(subtree_roots(mlp.num_tiles, mlp.tiles)))
            for target in targets:
                if target != source.seat.rank:
                    yield _Row(source.seat.rank, target, "partial", size)


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
