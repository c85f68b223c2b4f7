"""Pipelines of many layers for the oracles of another kind: what each interval costs, as tables.

Only latency, and no block that may lie anywhere. The sums are the brute force's own.
"""

import random
from itertools import permutations
from typing import Any

import numpy as np
from plancc_bruteforce_bytes import Group, Role
from plancc_bruteforce_sums import Sums
from plancc_builders import build_device, build_layer, build_model, build_topology

from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

MIB = 2**20
Matrix = np.ndarray[Any, np.dtype[Any]]
INF = np.iinfo(np.int64).max // 8


def random_chain_question(
    seed: int, num_devices: int, num_layers: int, **flags: Any
) -> tuple[ModelShape, Topology, Ask]:
    """Unequal layers and devices, ends, KV, windows; budgets of which most are needed."""
    rng = random.Random(f"chain/{seed}/{num_devices}")
    kinds = [
        build_layer(rng.randint(20, 60) * MIB + 7, kv=rng.choice([512, 4096]),
                    window=rng.choice([None, 128]), state=rng.choice([0, MIB]),
                    workspace=rng.choice([0, 0, MIB]), mlp_bytes=rng.randint(5, 15) * MIB,
                    kind="attention")
        for _ in range(rng.choice([2, 4, num_layers]))
    ]  # fmt: skip
    embed = rng.choice([0, 100, 300]) * MIB
    model = build_model(
        [rng.choice(kinds) for _ in range(num_layers)], embed=embed,
        head=embed or rng.choice([0, 200]) * MIB, tied=bool(embed) and rng.random() < 0.5,
        hidden_size=2048,
    )  # fmt: skip
    asked: dict[str, Any] = {
        "context": rng.choice([512, 4096]), "margin": 0.0, "tp": "off", "prefill_chunk": 64,
        "slots": rng.choice([1, 3]),
        "head": rng.choice(["last", "first", "auto"]) if model.block("head") else "auto",
    }  # fmt: skip
    ask = Ask(**(asked | flags)).filled(model.max_context, model.dtype)
    return model, _machine(rng, model, ask, num_devices), ask


def _machine(rng: random.Random, model: ModelShape, ask: Ask, count: int) -> Topology:
    kept = sum(
        (layer.mixer.kv_bytes_per_token or 0) * (ask.context or 1) * ask.slots
        + ask.slots * layer.state_bytes_per_slot + layer.weight_bytes for layer in model.layers
    )  # fmt: skip
    whole = kept + sum(block.resident_bytes for block in model.blocks)
    spread = rng.choice([(0.9, 1.3), (0.6, 2.0), (1.5, 4.0)])
    devices = [
        build_device(f"g{i}", int(whole * rng.uniform(*spread) / count) + 40 * MIB,
                     gb_s=rng.uniform(200, 1000), launch_us=rng.choice([0.0, 2.5]),
                     overhead_bytes=rng.choice([0, 8 * MIB]), tflops={"bfloat16": 50.0})
        for i in range(count)
    ]  # fmt: skip
    links = {
        pair: {"latency_us": rng.uniform(1, 60), "bandwidth_gb_s": rng.choice([1.0, 12.0, 50.0])}
        for pair in permutations([device.name for device in devices], 2)
    }
    return build_topology(devices, links=links)


class ChainTables:
    """Costs in ns of every interval [i, j) on every device, INF where it is not legal."""

    def __init__(self, model: ModelShape, topology: Topology, ask: Ask) -> None:
        self.model, self.ask, context = model, ask, ask.context or 1
        self.names = sorted(device.name for device in topology.devices)
        self.sums = Sums(model, topology, ask, context, 1)
        self.num_layers = len(model.layers)
        count = self.num_layers + 1
        layers = [self.sums.columns(Group((self.names[0],), "single"), (), (i, i + 1), _MIDDLE, 0)
                  for i in range(self.num_layers)]  # fmt: skip
        self.bytes = _intervals([sum(columns[:3]) for columns in layers])
        scratch = [layer.workspace_bytes for layer in model.layers]
        for first in range(self.num_layers):
            most = np.maximum.accumulate(np.array(scratch[first:], np.int64))
            self.bytes[first, first + 1 :] += most
        self.times = {
            name: _intervals([self.sums._layer(Group((name,), "single"), (), i)
                              for i in range(self.num_layers)])
            for name in self.names
        }  # fmt: skip
        self.is_interval = np.triu(np.ones((count, count), bool), 1)

    def head_modes(self) -> tuple[str, ...]:
        if self.model.block("head") is None:
            return ("last",)
        return ("last", "first") if self.ask.head == "auto" else (self.ask.head,)

    def cost(self, name: str, mode: str, *, is_first: bool, is_last: bool) -> Matrix:
        """[i, j] ns of layers i..j-1 on a device in this role, its blocks included."""
        has_head = self.model.block("head") is not None and (
            is_first if mode == "first" else is_last
        )
        row = 2 * self.model.hidden_size
        ends = (not is_first) + (not is_last)
        if mode == "first" and is_first != is_last:
            ends += 1
        blocks = self._block_bytes(has_embed=is_first, has_head=has_head)
        need = self.bytes + blocks + ends * 2 * self.sums.step_rows * row
        time = self.times[name].copy()
        if is_first and self.model.block("embed") is not None:
            time += self.sums._launch(name, 1)
        head = self.model.block("head")
        if has_head and head is not None:
            time += self.sums._kernel(name, head.weight_bytes, None) + self.sums._launch(name, 2)
        return np.where(self.is_interval & (need <= self.sums.budget(name)), time, INF)

    def hop(self, one: str, two: str) -> int:
        return self.sums.link(one, two, self.sums.row_bytes)

    def back(self, last: str, first: str, mode: str) -> int:
        return self.sums.link(last, first, self.sums.row_bytes if mode == "first" else 64)

    def alone(self) -> int:
        """The whole model on one device; INF where none holds it."""
        costs = [self.cost(name, "last", is_first=True, is_last=True)[0, self.num_layers]
                 for name in self.names]  # fmt: skip
        return int(min(costs))

    def _block_bytes(self, *, has_embed: bool, has_head: bool) -> int:
        embed, head = self.model.block("embed"), self.model.block("head")
        total = embed.resident_bytes if has_embed and embed is not None else 0
        if has_head and head is not None:
            total += head.resident_bytes
            if has_embed and embed is not None and head.tied_to is not None:
                total -= embed.weight_bytes
        return total


_MIDDLE = Role(stage=1, num_stages=3, has_head=False, head_first=False, blocks=())


def _intervals(values: list[int]) -> Matrix:
    """[i, j] sums of values i..j-1."""
    sums = np.concatenate([[0], np.cumsum(np.array(values, np.int64))])
    return sums[None, :] - sums[:, None]
