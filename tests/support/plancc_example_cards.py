"""Cards by their datasheets, and a machine as rows of a topology; see plancc_example_topologies."""

from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

Row = dict[str, Any]
READ_SHARE, MATMUL_SHARE, PCIE_SHARE = 0.9, 0.7, 0.8  # of a datasheet, where nobody measured


@dataclass(frozen=True)
class Card:
    """Datasheet: usable memory in GiB, GB/s, dense 16-bit TFLOP/s with fp32 accumulation."""

    gib: int
    gb_s: float
    tflops: float
    dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")


CARDS = {
    "RTX 3060": Card(12, 360, 25.6),
    "RTX 3090": Card(24, 936, 71),
    "RTX 4060 Ti": Card(16, 288, 44),
    "RTX 4060 Laptop": Card(8, 256, 30),
    "RTX 4080 Laptop": Card(12, 432, 66),
    "RTX 4090": Card(24, 1008, 165),
    "RTX 5080": Card(16, 960, 112),
    "RTX 5090": Card(32, 1792, 209),
    "RTX A4000": Card(16, 448, 76),
    "RTX A5000": Card(24, 768, 111),
    "RTX A6000": Card(48, 768, 155),
    "A40": Card(45, 696, 150),
    "A100 40GB": Card(40, 1555, 312),
    "A100 80GB": Card(80, 2039, 312),
    "L40S": Card(45, 864, 362),
    "V100 32GB": Card(32, 900, 125, ("float16", "float32")),
    "H100 80GB": Card(80, 3350, 989),
    "GB10": Card(119, 273, 125),
    "H200": Card(139, 4800, 989),
}
PCIE_GB_S = {"3x4": 3.94, "3x8": 7.88, "3x16": 15.75, "4x4": 7.88, "4x8": 15.75, "4x16": 31.5,
             "5x16": 63.0}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Hosts and devices as rows. `pairs` gives a pair's link; others are staged through PCIe."""

    name: str
    comment: tuple[str, ...]
    devices: list[Row]
    slots: dict[str, str] = field(default_factory=dict)  # device -> PCIe generation and width
    pairs: dict[tuple[str, str], Row] = field(default_factory=dict)
    network: Row = field(default_factory=dict)
    exchanges: list[Row] = field(default_factory=list)
    uplinks: dict[str, str] = field(default_factory=dict)  # device -> trunk; else one a host

    @property
    def hosts(self) -> list[Row]:
        names = sorted({device["host"] for device in self.devices})
        return [{"name": name, "address": f"192.168.1.{index + 10}" if len(names) > 1 else
                 "127.0.0.1"} for index, name in enumerate(names)]  # fmt: skip

    def links(self) -> list[Row]:
        """A row for each ordered pair."""
        return [self._link(*pair) for pair in permutations(self.devices, 2)]

    def _link(self, source: Row, target: Row) -> Row:
        ends = {"from": source["name"], "to": target["name"]}
        if source["host"] != target["host"]:
            return ends | self.network
        pair = (source["name"], target["name"])
        return ends | (self.pairs.get(pair) or self._staged(*pair, source["host"]))

    def _staged(self, source: str, target: str, host: str) -> Row:
        """Through host memory: the slower slot rules; writing to a card is a little faster."""
        down, up = PCIE_GB_S[self.slots[source]] * 0.95, PCIE_GB_S[self.slots[target]]
        latency = 12.0 + 60.0 / down + 40.0 / up
        return {
            "mode": "staged",
            "latency_us": round(latency, 1),
            "bandwidth_gb_s": round(PCIE_SHARE * min(down, up), 1),
            "trunk": self.uplinks.get(source, f"pcie-{host}"),
        }


def card(name: str, kind: str, *, host: str = "h0", display: bool = False, **measured: Any) -> Row:
    """A device row from its datasheet, but for what was measured."""
    data = CARDS[kind]
    row: Row = {
        "name": name,
        "host": host,
        "kind": "cuda",
        "total_bytes": f"{data.gib} GiB",
        "free_bytes": f"{data.gib - (1.2 if display else 0.4):.1f} GiB",
        "reserve_bytes": "0.5 GiB" if display else "0.25 GiB",
        "overhead_bytes": "0.8 GiB",
        "read_gb_s": round(READ_SHARE * data.gb_s),
        "tflops": {data.dtypes[0]: round(MATMUL_SHARE * data.tflops)},
        "launch_us": 2.5,
        "dtypes": list(data.dtypes),
    }
    return row | measured


def both_ways(pairs: dict[tuple[str, str], Row]) -> dict[tuple[str, str], Row]:
    return pairs | {(target, source): row for (source, target), row in pairs.items()}


def p2p(latency_us: float, gb_s: float) -> Row:
    return {"mode": "p2p", "latency_us": latency_us, "bandwidth_gb_s": gb_s}
