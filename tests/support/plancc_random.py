"""Seeded random questions for the placement solver: small, unequal, often tight."""

import random
from itertools import pairwise, permutations
from typing import Any

from plancc_builders import build_device, build_layer, build_model, build_topology

from plancc.ir.ask import Ask, Workload
from plancc.ir.layers import Block
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

MIB = 2**20
Question = tuple[ModelShape, Topology, Ask]


def random_question(seed: int, objective: str = "latency", **asked: Any) -> Question:
    """At most 7 layers on 4 devices, with ends, ties, KV, windows, state, blocks and pins."""
    rng = random.Random(f"{seed}/{objective}")
    model = _model(rng)
    topology = _topology(rng, model)
    flags: dict[str, Any] = {
        "objective": objective,
        "context": rng.choice([64, 200, 512]),
        "slots": rng.choice([1, 1, 2, 3]),
        "margin": rng.choice([0, 0.03, 0.2]),
        "prefill_chunk": rng.choice([32, 128]),
        "prompt": rng.choice([40, 300]),
    }
    if objective == "workload":
        flags |= random_workload(rng)
    names = [device.name for device in topology.devices]
    flags["head"] = rng.choice(["auto", "auto", "last", "first"]) if model.block("head") else "auto"
    _add_pins(rng, model, names, flags)
    return model, topology, Ask(**(flags | asked)).filled(model.max_context, model.dtype)


def random_workload(rng: random.Random) -> dict[str, Any]:
    """Now of one chunk, now of many; now and then with a slot to spare, or another prompt."""
    streams = rng.choice([1, 2, 3, 5])
    work = Workload(prompt=rng.choice([40, 300]), output=rng.choice([1, 1, 3, 20]), streams=streams)
    return {"workload": work, "slots": streams + rng.choice([0, 0, 1])}


def _add_pins(
    rng: random.Random, model: ModelShape, names: list[str], flags: dict[str, Any]
) -> None:
    if rng.random() < 0.25:
        order = rng.sample(names, rng.randint(1, len(names)))
        flags["devices"] = tuple(order)
    known = list(flags.get("devices", names))
    if rng.random() < 0.2:
        flags["max_devices"] = rng.randint(1, len(known))
    if model.blocks and rng.random() < 0.2:
        flags["pin"] = {rng.choice(model.blocks).name: rng.choice(known)}
    if rng.random() < 0.1:
        count = rng.randint(1, min(len(known), len(model.layers), flags.get("max_devices", 9)))
        cuts = sorted(rng.sample(range(1, len(model.layers)), count - 1))
        ends = [0, *cuts, len(model.layers)]
        flags["stage_layers"] = tuple(b - a for a, b in pairwise(ends))


def _model(rng: random.Random) -> ModelShape:
    layers: list[Any] = []
    for index in range(rng.randint(2, 7)):
        kind = rng.random()
        borrowed = [i for i, layer in enumerate(layers)
                    if layer.kv_from is None and layer.mixer.window is None
                    and layer.mixer.kind == "attention"]  # fmt: skip
        weight = rng.randint(4, 40) * MIB + rng.randint(0, 999)
        mlp = weight // 2 if rng.random() < 0.7 else 0
        if kind < 0.12 and borrowed and index:
            layers.append(build_layer(weight, kv_from=rng.choice(borrowed), mlp_bytes=mlp))
            continue
        layers.append(build_layer(
            weight,
            kv=rng.choice([0, 512, 4096, 16384]),
            window=rng.choice([None, None, 100]),
            state=rng.choice([0, 0, MIB]),
            mlp_bytes=mlp,
            kind="attention",
        ))  # fmt: skip
    embed = rng.choice([0, 0, 5, 20]) * MIB
    tied = bool(embed) and rng.random() < 0.4
    head = embed + rng.choice([0, 1000]) if tied else rng.choice([0, 5, 30]) * MIB
    blocks = [Block(name="aux", weight_bytes=rng.randint(1, 20) * MIB, workspace_bytes=MIB,
                    place=rng.choice(["any", "any", "first", "last"]))]  # fmt: skip
    return build_model(layers, embed=embed, head=head, tied=tied and head > 0,
                       blocks=blocks if rng.random() < 0.4 else (), hidden_size=512)  # fmt: skip


def _topology(rng: random.Random, model: ModelShape) -> Topology:
    """Budgets around the model's bytes over the number of devices; some devices are alike."""
    count = rng.randint(1, 4)
    bytes_of = sum(layer.weight_bytes for layer in model.layers)
    bytes_of += sum(block.resident_bytes for block in model.blocks)
    devices = []
    for index in range(count):
        if devices and rng.random() < 0.3:
            devices.append(devices[-1].model_copy(update={"name": f"g{index}"}))
            continue
        free = int(bytes_of * rng.uniform(0.5, 2.2) / count) + 8 * MIB
        devices.append(build_device(
            f"g{index}", free, gb_s=rng.choice([100.0, 400.0, 936.0]),
            overhead_bytes=rng.choice([0, 2 * MIB]), reserve_bytes=rng.choice([0, MIB]),
            launch_us=rng.choice([0.0, 2.5]), tflops={"bfloat16": rng.choice([5.0, 60.0])},
        ))  # fmt: skip
    rng.shuffle(devices)
    names = [device.name for device in devices]
    links = {pair: {"latency_us": rng.choice([1.0, 20.0, 300.0]),
                    "bandwidth_gb_s": rng.choice([1.0, 12.0])}
             for pair in permutations(names, 2) if rng.random() < 0.7}  # fmt: skip
    return build_topology(devices, links=links)
