"""Equal devices, equal links, equal layers: only sizes of stages matter, so that groups of up to
eight ranks can be tried in full. The sums are the brute force's own; latency only."""

import random
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from plancc_bruteforce_bytes import Group, Role
from plancc_bruteforce_shapes import tile_runs
from plancc_bruteforce_sums import Sums
from plancc_builders import build_device, build_model, build_topology

from plancc.ir.ask import Ask
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

MIB = 2**20
Kind = tuple[int, str]
"""(ranks, mixer) of a stage"""


def random_equal_question(seed: int, **flags: Any) -> tuple[ModelShape, Topology, Ask]:
    rng = random.Random(f"equal/{seed}")
    tiles = rng.choice([4, 6, 8])
    layer = Layer.model_validate({
        "mixer": {"kind": "attention", "weight_bytes": rng.randint(5, 40) * MIB + 3,
                  "kv_bytes_per_token": rng.choice([512, 4096])},
        "mlp": {"kind": "swiglu", "weight_bytes": rng.randint(20, 200) * MIB + 5,
                "intermediate_size": tiles * 128, "tiles": tiles},
    })  # fmt: skip
    num_layers, count = rng.randint(4, 12), rng.randint(5, 8)
    embed = rng.choice([0, 50]) * MIB
    model = build_model([layer] * num_layers, embed=embed, head=rng.choice([0, 60]) * MIB,
                        hidden_size=rng.choice([512, 1024]))  # fmt: skip
    whole = sum(layer.weight_bytes for layer in model.layers)
    whole += sum(block.resident_bytes for block in model.blocks)
    free = int(whole * rng.choice([1.1, 1.4, 2.5, 8]) / count) + 60 * MIB
    topology = build_topology(
        [build_device(f"g{i}", free, gb_s=400.0, launch_us=2.5) for i in range(count)],
        latency_us=rng.choice([1.0, 5.0, 40.0]), gb_s=rng.choice([12.0, 100.0]),
    )  # fmt: skip
    asked: dict[str, Any] = {"context": rng.choice([256, 2048]), "margin": 0.0,
                             "prefill_chunk": rng.choice([16, 128]), "head": "last"}  # fmt: skip
    return model, topology, Ask(**(asked | flags)).filled(model.max_context, model.dtype)


@dataclass(frozen=True)
class EqualDevices:
    """Best of every chain of stages by numbers of layers and devices."""

    model: ModelShape
    topology: Topology
    ask: Ask

    def least_latency(self) -> int | None:
        """ns of the best decode step; None where nothing fits."""
        sums = Sums(self.model, self.topology, self.ask, self.ask.context or 1, 1)
        names = [device.name for device in self.topology.devices]
        most, layers = len(names), len(self.model.layers)
        kinds = [(1, "single"), *product(range(2, most + 1), ("replicated", "owned"))]

        @cache
        def stage(kind: Kind, count: int, is_first: bool, is_last: bool) -> int | None:
            number = 0 if is_first else 1
            role = Role(number, 1 if is_first and is_last else number + 1 + (not is_last), is_last,
                        False, ())  # fmt: skip
            return _least(sums, Group(tuple(names[: kind[0]]), kind[1]), count, role)  # type: ignore[arg-type]

        @cache
        def hop(one: Kind, two: Kind) -> int:
            here = Group(tuple(names[: one[0]]), one[1])  # type: ignore[arg-type]
            there = Group(tuple(names[one[0] : one[0] + two[0]]), two[1])  # type: ignore[arg-type]
            return sums.hop(here, there)

        @cache
        def rest(last: Kind, done: int, used: int) -> int | None:
            """What follows a stage of this kind; the token back is one transfer like any other."""
            found = []
            for kind in kinds:
                for count in range(1, layers - done + 1):
                    is_last = done + count == layers
                    if used + kind[0] > most or (not is_last and used + kind[0] == most):
                        continue
                    here = stage(kind, count, False, is_last)
                    tail = 0 if is_last else rest(kind, done + count, used + kind[0])
                    if here is not None and tail is not None:
                        found.append(hop(last, kind) + here + tail)
            return min(found, default=None)

        found = []
        for kind in kinds:
            for count in range(1, layers + 1):
                here = stage(kind, count, True, count == layers)
                tail = 0 if count == layers else rest(kind, count, kind[0])
                if here is not None and tail is not None:
                    back = 0 if count == layers else sums.link(names[1], names[0], 64)
                    found.append(here + tail + back)
        return min(found, default=None)


def _least(sums: Sums, group: Group, count: int, role: Role) -> int | None:
    """ns of so many layers on a group, over all deals of tiles that fit."""
    layers, found = (0, count), []
    for tiles in tile_runs(sums.model, layers, len(group.devices)):
        fits = all(
            sum(sums.columns(group, tiles, layers, role, rank)) <= sums.budget(name)
            for rank, name in enumerate(group.devices)
        )
        if fits:
            time = sums.compute(group, tiles, layers, role)
            found.append(time + sums.exchanged(group, tiles, layers, role))
    return min(found, default=None)
