"""The systems of plans/seeds/: rows, model and machine; and what a shape of theirs is priced at.

python tests/support/plancc_seed_table.py      writes plans/seeds/README.md anew
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.predict import stage_times
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.manifest import ModelManifest, read_manifest
from plancc.ir.plan import Proof
from plancc.ir.topology import Topology, read_topology

SEEDS = Path(__file__).resolve().parents[2] / "plans" / "seeds"
SHORT_CONTEXT = 256
"""Tokens of KV that a decode step reads where a report says a short chat prompt."""


@dataclass(frozen=True)
class Row:
    """A reported fact. role: given, predict or measured."""

    role: str
    name: str
    value: Any
    within: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class System:
    name: str
    rows: tuple[Row, ...]
    model: ModelManifest
    machine: Topology | None

    def chosen(self, role: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.role == role)


@cache
def systems() -> dict[str, System]:
    data = yaml.safe_load((SEEDS / "rows.yaml").read_text(encoding="utf-8"))
    return {item["id"]: _system(item) for item in data}


def machine(name: str) -> Topology:
    return read_topology(SEEDS / f"{name}.topo.yaml")


def _system(item: dict[str, Any]) -> System:
    topology = read_topology(SEEDS / item["machine"]) if "machine" in item else None
    rows = tuple(_row(dict(row)) for row in item["rows"])
    return System(item["id"], rows, read_manifest(SEEDS / item["model"]), topology)


def _row(fields: dict[str, Any]) -> Row:
    role = next(role for role in ("given", "predict", "measured") if role in fields)
    return Row(role, fields.pop(role), **fields)


def pipeline(model: ModelManifest, layers: dict[str, int], *, head: str) -> tuple[PlacedStage, ...]:
    """One device a stage, so many layers each; the head in the first or the last of them."""
    stages, first = [], 0
    for number, (name, count) in enumerate(layers.items()):
        is_first, is_last = number == 0, number == len(layers) - 1
        has_head = is_first if head == "first" else is_last
        blocks = (("embed",) if is_first else ()) + (("head",) if has_head else ())
        stages.append(PlacedStage((first, first + count), (name,), ((0, 1),), "single", blocks))
        first += count
    assert first == len(model.layers)
    return tuple(stages)


def mlp_only_tp(model: ModelManifest, topology: Topology) -> tuple[PlacedStage, ...]:
    """All devices in one group with equal shares: mixer, KV and state on each of them."""
    names = tuple(device.name for device in topology.devices)
    mlp = model.layers[0].mlp
    assert mlp is not None
    assert mlp.kind == "swiglu"
    share = mlp.num_tiles // len(names)
    tiles = tuple((rank * share, (rank + 1) * share) for rank in range(len(names)))
    layers = (0, len(model.layers))
    return (PlacedStage(layers, names, tiles, "replicated", ("embed", "head")),)


def step_ns(
    model: ModelManifest,
    topology: Topology,
    stages: tuple[PlacedStage, ...],
    *,
    rows: int = 1,
    context: int = SHORT_CONTEXT,
) -> int:
    """ns of a decode step of so many rows through the stages, one after the other."""
    placement = Placement(stages, context, NO_PROOF)
    times = stage_times(model, topology, placement, Work(rows, context, model.dtype))
    return sum(time.compute_ns + time.exchange_ns + time.hop_ns for time in times)


NO_PROOF = Proof(name="none", version="", space="one shape", status="feasible", objective="latency",
                 value=0, bound=0, best=0, best_bound=0, gap=0.0)  # fmt: skip
