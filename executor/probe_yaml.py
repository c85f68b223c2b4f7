"""A topology as YAML that people read: a line for each group of a device's numbers."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plancc.ir.files import write_whole
from plancc.ir.topology import Device, Topology

_GROUPS = (
    ("name", "host", "kind", "uuid", "threads"),
    ("total_bytes", "free_bytes", "reserve_bytes", "overhead_bytes", "wire_bytes"),
    ("read_gb_s", "read_points"),
    ("tflops", "matmul_points", "attention_tflops", "row_block"),
    ("launch_us", "dtypes", "scratch"),
)
_MIB = 2**20


def to_yaml(topology: Topology) -> str:
    """Text that `read_topology` reads back to the same topology."""
    rows = [_flow({key: getattr(topology, key)})[1:-1] for key in ("format", "name")] + ["hosts:"]
    rows += [f"  - {_flow(host.model_dump(mode='json'))}" for host in topology.hosts]
    rows.append("devices:")
    for device in topology.devices:
        rows += _device_rows(device)
    for key, items in (("links", topology.links), ("exchanges", topology.exchanges)):
        if items:
            rows.append(f"{key}:")
            rows += [
                f"  - {_flow(item.model_dump(mode='json', by_alias=True, exclude_defaults=True))}"
                for item in items
            ]
    return "\n".join(rows) + "\n"


def write_topology(topology: Topology, path: Path) -> None:
    """Replace the file as a whole, or leave it as it was. Raises BadInput when it cannot."""
    write_whole(path, to_yaml(topology))


def _device_rows(device: Device) -> Iterator[str]:
    data = device.model_dump(mode="json", exclude_defaults=True)
    for key in _GROUPS[1]:
        if key in data:
            data[key] = _bytes(data[key])
    lines = []
    for group in _GROUPS:
        fields = {key: data.pop(key) for key in group if key in data}
        if fields:
            lines.append(_flow(fields)[1:-1])
    assert not data, f"fields without a group: {sorted(data)}"
    yield f"  - {{{lines[0]},"
    yield from (f"     {line}," for line in lines[1:-1])
    yield f"     {lines[-1]}}}"


def _flow(value: dict[str, Any]) -> str:
    """One line of YAML flow style."""
    import yaml  # not needed to measure

    text: str = yaml.safe_dump(
        _whole(value), default_flow_style=True, sort_keys=False, width=math.inf
    )
    return text.strip()


def _whole(value: Any) -> Any:
    """33554432 rather than 33554432.0."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(size: int) -> int | str:
    """Whole MiB with their unit; anything else to the byte."""
    return f"{size // _MIB} MiB" if size % _MIB == 0 else size
