"""Seeded questions in round numbers, so that other mixes of prompt and output are worth the same.

Some devices compute faster and some read faster, by whole factors, and all layers are alike: a
layer that moves makes the prompt's beat longer by as much as it makes the rounds shorter.
"""

import random
from typing import Any

from plancc_builders import build_device, build_layer, build_model, build_topology

from plancc.ir.ask import Ask, Workload
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

WEIGHT = 8_000_000  # bytes a layer: whole us on every device
ROWS = 1000
KINDS = ((50.0, 50.0), (100.0, 25.0), (100.0, 50.0))
"""(GB/s, TFLOP/s): a layer takes 160 us (80, 80) a token, and 160 us (320, 160) a chunk."""


def random_tie_question(
    seed: int, objective: str = "workload", **flags: Any
) -> tuple[ModelShape, Topology, Ask]:
    rng = random.Random(f"ties/{seed}")
    count = rng.choice([2, 3, 3, 4])
    model = build_model([build_layer(WEIGHT)] * rng.randint(count, 6), hidden_size=64)
    spare = rng.choice([0, 0, 1])
    devices = []
    for index in range(count):
        gb_s, tflops = rng.choice(KINDS)
        layers = len(model.layers) // 2 + rng.choice([0, 1]) + spare
        devices.append(build_device(
            f"g{index}", layers * WEIGHT + rng.choice([1, 2]) * 10**6, gb_s=gb_s, launch_us=0.0,
            tflops={"bfloat16": tflops},
        ))  # fmt: skip
    topology = build_topology(devices, latency_us=0.001, gb_s=1e6)
    work = Workload(prompt=ROWS, output=rng.choice([1, 2, 2, 4, 4, 8]),
                    streams=rng.choice([1, 1, 2, 3]))  # fmt: skip
    asked: dict[str, Any] = {"workload": work, "prefill_chunk": ROWS, "context": 64, "tp": "off",
                             "margin": rng.choice([0, 0.03, 0.2])}  # fmt: skip
    ask = Ask.model_validate(asked | flags)
    return model, topology, ask.filled(model.max_context, model.dtype)
