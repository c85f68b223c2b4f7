"""Two topologies that differ in one measured number: what it decides must change, nothing else did.

Paths of the numbers look like links.3.latency_us.
"""

from collections.abc import Iterator
from typing import Any

from plancc_cuts import placed

from plancc.compiler.placement.placement import Placement
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology


def with_link(topology: Topology, source: str, target: str, **fields: Any) -> Topology:
    """The same with other numbers in the row source -> target."""
    links = tuple(row.model_copy(update=fields) if (row.from_, row.to) == (source, target) else row
                  for row in topology.links)  # fmt: skip
    return Topology.model_validate(topology.model_copy(update={"links": links}).model_dump(
        by_alias=True))  # fmt: skip


def with_device(topology: Topology, name: str, **fields: Any) -> Topology:
    """The same with other numbers of one device."""
    devices = tuple(row.model_copy(update=fields) if row.name == name else row
                    for row in topology.devices)  # fmt: skip
    return Topology.model_validate(topology.model_copy(update={"devices": devices}).model_dump(
        by_alias=True))  # fmt: skip


def with_exchange(topology: Topology, *points: tuple[float, float]) -> Topology:
    """The same with another curve of its only exchange."""
    (row,) = topology.exchanges
    changed = (row.model_copy(update={"points": points}),)
    return Topology.model_validate(topology.model_copy(update={"exchanges": changed}).model_dump(
        by_alias=True))  # fmt: skip


def differences(one: Topology, two: Topology) -> list[str]:
    """Paths of all values that differ."""
    leaves = [dict(_leaves(topology.model_dump(mode="json"))) for topology in (one, two)]
    paths = sorted(leaves[0].keys() | leaves[1].keys())
    return [path for path in paths if leaves[0].get(path) != leaves[1].get(path)]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


def both(
    model: ModelShape, before: Topology, after: Topology, **flags: Any
) -> tuple[Placement, Placement]:
    """The placements on two topologies of which one number differs."""
    assert len(differences(before, after)) == 1
    return placed(model, before, **flags), placed(model, after, **flags)
