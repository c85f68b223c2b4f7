"""Nanoseconds of a layer that a TP group shares.

replicated   compute  the slowest rank's mixer + its share of the MLP
             exchange everyone's partial rows to everyone: the measured curve, else the links
owned        compute  the owner's mixer, then the slowest share of the MLP
             exchange normed rows from the owner, partial rows back: as measured, else two latencies
             of the links

What all compute at once in a decode step takes as many times as long as the group's row says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plancc.compiler.cost.comm import transfers_ns
from plancc.compiler.cost.compute import Work, layer_parts_ns
from plancc.ir.groups import (
    Mixer,
    exchange_pairs,
    partial_row_bytes,
    share_roots,
    spread_pairs,
)
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import hidden_row_bytes
from plancc.ir.tiles import Span
from plancc.ir.topology import Device, Topology


@dataclass(frozen=True)
class Group:
    """Devices of a stage in rank order; rank 0 is the lead. One device is a group of its own."""

    devices: tuple[Device, ...]
    mixer: Mixer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)


def group_layer_ns(
    model: ModelShape,
    topology: Topology,
    group: Group,
    shares: Sequence[Span],
    index: int,
    work: Work,
) -> int:
    """Compute of one layer; the whole layer on a group of one."""
    if group.mixer == "single":
        return sum(layer_parts_ns(model, group.devices[0], index, work))
    parts = [layer_parts_ns(model, device, index, work, share)
             for device, share in zip(group.devices, shares, strict=True)]  # fmt: skip
    if group.mixer == "replicated":
        return _at_once_ns(topology, group, work, max(mixer + mlp for mixer, mlp in parts))
    return parts[0][0] + _at_once_ns(topology, group, work, max(mlp for _, mlp in parts))


def _at_once_ns(topology: Topology, group: Group, work: Work, alone_ns: int) -> int:
    measured = topology.exchange(group.names)
    if measured is None or work.prompt is not None:
        return alone_ns
    return measured.at_once_ns(alone_ns)


def exchange_ns(
    model: ModelShape, topology: Topology, group: Group, shares: Sequence[Span], rows: int
) -> int:
    """The exchange after one cut MLP, for a step of so many rows."""
    if group.mixer == "single":
        return 0
    names, roots = group.names, share_roots(shares)
    sizes = [rows * partial_row_bytes(model, count) for count in roots]
    normed_bytes, measured = rows * hidden_row_bytes(model), topology.exchange(names)
    if measured is not None and group.mixer == "replicated":
        return measured.curve().ns(max(sizes))
    if measured is not None and measured.owned_points:
        return measured.owned_ns(normed_bytes, max(sizes[1:]))
    pairs = exchange_pairs(group.mixer, len(names))
    partial = transfers_ns(topology, [(names[a], names[b], sizes[a]) for a, b in pairs])
    if group.mixer == "replicated":
        return partial
    normed = [(names[0], name, normed_bytes) for name in names[1:]]
    return transfers_ns(topology, normed) + partial


def spread_ns(model: ModelShape, topology: Topology, group: Group, rows: int) -> int:
    """In the first stage: embedded rows from the lead to the ranks that hold rows."""
    size, names = rows * hidden_row_bytes(model), group.names
    pairs = spread_pairs(group.mixer, len(names))
    return transfers_ns(topology, [(names[a], names[b], size) for a, b in pairs])
