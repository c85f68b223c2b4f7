"""The read rate of a machine from the one row that its report gives for it.

A decode step is a + b / rate: what bytes take at the rate, and hops and launches besides. Two
prices of the same shape give a and b; the reported step then gives the rate. Nothing but the given
rows goes in.
"""

from collections.abc import Sequence

from plancc_seed_systems import Row, machine, pipeline, step_ns, systems

from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.manifest import ModelManifest
from plancc.ir.topology import Topology

DATASHEET_GB_S = {"RTX 3090": 936.0, "RTX A4000": 448.0, "RTX 4090": 1008.0, "RTX 5090": 1792.0,
                  "A100 PCIe 40GB": 1555.0, "A40": 696.0, "RTX 4060 Ti": 288.0,
                  "RTX 5080": 960.0}  # fmt: skip
PROBES = (500.0, 1000.0)


def at_rate(topology: Topology, gb_s: float) -> Topology:
    """The same machine, all of its devices reading at so many GB/s."""
    devices = [device.model_copy(update={"read_gb_s": gb_s}) for device in topology.devices]
    return topology.model_copy(update={"devices": tuple(devices)})


def read_rate(
    model: ModelManifest, topology: Topology, stages: tuple[PlacedStage, ...], tok_s: float
) -> float:
    """GB/s at which a decode step through `stages` takes 1 / tok_s seconds."""
    low, high = PROBES
    slow, fast = (step_ns(model, at_rate(topology, rate), stages) for rate in PROBES)
    per_rate = (slow - fast) / (1 / low - 1 / high)
    fixed = slow - per_rate / low
    return round(per_rate / (1e9 / tok_s - fixed), 1)


def rate_of_3090(given: Sequence[Row]) -> float:
    """From the tokens a second of the whole 27B on one card."""
    model, topology = systems()["ninfer-27b-2x3090"].model, machine("2x3090")
    stages = pipeline(model, {"gpu0": 64}, head="last")
    return read_rate(model, topology, stages, _value(given, "decode_one_card_tok_s"))


def rate_of_a4000(given: Sequence[Row]) -> float:
    """From the tokens a second of the 27B in two stages, the head with the first."""
    model, topology = systems()["ninfer-27b-2xa4000"].model, machine("2xa4000")
    stages = pipeline(model, {"gpu0": 32, "gpu1": 32}, head="first")
    return read_rate(model, topology, stages, _value(given, "decode_two_stages_tok_s"))


def calibrated() -> dict[str, float]:
    """GB/s of each card of the seeds: two by a given row, the others at the 3090's share."""
    known = systems()
    rate = rate_of_3090(known["ninfer-27b-2x3090"].chosen("given"))
    share = rate / DATASHEET_GB_S["RTX 3090"]
    rates = {card: round(share * gb_s, 1) for card, gb_s in DATASHEET_GB_S.items()}
    return rates | {"RTX A4000": rate_of_a4000(known["ninfer-27b-2xa4000"].chosen("given"))}


def _value(given: Sequence[Row], name: str) -> float:
    (row,) = [row for row in given if row.name == name]
    assert row.role == "given", f"{name} is to be predicted, not to calibrate with"
    return float(row.value)
