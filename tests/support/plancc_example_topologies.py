"""The topologies in plans/topologies/: machines to compile for when none is at hand.

    python tests/support/plancc_example_topologies.py     writes them all anew

What was measured says so; all else are stand-ins from datasheets (STAND_INS).
"""

from pathlib import Path
from typing import Any

import yaml
from plancc_example_cards import Machine
from plancc_example_machines import MACHINES

from plancc.ir.topology import TOPOLOGY_FORMAT, Topology

TOPOLOGIES = Path(__file__).resolve().parents[2] / "plans" / "topologies"

STAND_INS = (
    "Where nothing else is said: 0.9 of the datasheet's memory rate, 0.7 of its dense 16-bit",
    "matrix rate, 0.8 of the PCIe slots. planprobe measures the machine itself.",
)


def main() -> None:
    TOPOLOGIES.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (TOPOLOGIES / f"{name}.yaml").write_text(text, encoding="utf-8")


def texts() -> dict[str, str]:
    """File stem -> the whole text; each has been read back as a topology."""
    return {machine.name: text_of(machine) for machine in MACHINES}


def text_of(machine: Machine) -> str:
    """Comment, then a line a host, device, link and exchange."""
    data = {"format": TOPOLOGY_FORMAT, "name": machine.name, "hosts": machine.hosts,
            "devices": machine.devices, "links": machine.links(),
            "exchanges": machine.exchanges}  # fmt: skip
    Topology.model_validate(data)
    lines = [f"# {line}" for line in (*machine.comment, *STAND_INS)]
    lines += [f"format: {TOPOLOGY_FORMAT}", f"name: {machine.name}"]
    for key in ("hosts", "devices", "links", "exchanges"):
        rows = data[key]
        if rows:
            lines += [f"{key}:", *(f"  - {_flow(row)}" for row in rows)]
    return "\n".join(lines) + "\n"


def _flow(row: dict[str, Any]) -> str:
    return yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=10**9).strip()


if __name__ == "__main__":
    main()
