"""Seeded random questions with TP groups: 2 to 4 unequal devices on one or two hosts.

About a third are tight, so that only a few shapes fit; links are slow or fast enough that groups
pay in some and not in others.
"""

import random
from collections.abc import Sequence
from itertools import combinations, pairwise, permutations
from typing import Any

from plancc_builders import build_device, build_model, build_topology
from plancc_random import random_workload

from plancc.ir.ask import Ask
from plancc.ir.exchange import Exchange
from plancc.ir.layers import Block, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

MIB = 2**20
Question = tuple[ModelShape, Topology, Ask]
Random = random.Random
Sizes = tuple[Sequence[int], range]


SMALL = ((2, 2, 3, 3, 3, 4), range(3, 7))
LARGE = ((4, 5), range(5, 9))
"""(numbers of devices to choose from, numbers of layers)"""


def random_group_question(
    seed: int, objective: str = "latency", sizes: Sizes = SMALL, **flags: Any
) -> Question:
    """Every flag that binds a placement is asked for now and then; `flags` win."""
    rng = Random(f"groups/{seed}/{objective}")
    model = random_model(rng, sizes[1])
    timed = "prefill" if objective == "workload" else objective  # both need matmul rates
    topology = random_topology(rng, model, timed, sizes[0])
    asked: dict[str, Any] = {
        "objective": objective,
        "context": rng.choice([64, 200, 512]),
        "slots": rng.choice([2, 3, 4] if objective == "throughput" else [1, 1, 2, 3]),
        "margin": rng.choice([0, 0.03, 0.2]),
        "prefill_chunk": rng.choice([16, 128]),
        "prompt": rng.choice([40, 300]),
    }
    if objective == "workload":
        asked |= random_workload(rng)
    if model.block("head") is not None:
        asked["head"] = rng.choice(["auto", "auto", "last", "first"])
    if model.block("aux") is not None and rng.random() < 0.15:
        asked["without"] = ("aux",)
    if model.geometry is not None:
        asked["kv_dtype"] = rng.choice([None, None, "float32"])
    _ask_for_devices(rng, model, [device.name for device in topology.devices], asked)
    ask = Ask.model_validate(asked | flags)
    return model, topology, ask.filled(model.max_context, model.dtype)


def random_home_question(seed: int, objective: str = "latency") -> Question:
    """Four devices and a block that may lie anywhere, or is pinned: also between the ends."""
    none: dict[str, Any] = {"stage_layers": None, "without": (), "max_devices": None,
                            "devices": None, "tp": "auto", "pin": {}}  # fmt: skip
    sizes = (4,), range(3, 6)
    model, topology, ask = random_group_question(seed, objective, sizes, **none)
    ends = tuple(block for block in model.blocks if block.name in ("embed", "head"))
    block = Block(name="aux", weight_bytes=15 * MIB, place="any")
    model = model.model_copy(update={"blocks": (*ends, block)})
    home = {"aux": topology.devices[seed % 4].name} if seed % 3 else {}
    return model, topology, ask.model_copy(update={"pin": home})


def random_layout_question(seed: int, objective: str = "latency") -> Question:
    """Known geometry, on devices that lay out scratch in blocks, in chunks, or by their kind."""
    rng, at = Random(f"layouts/{seed}/{objective}"), 10**8 + 1000 * seed
    model, topology, ask = random_group_question(at, objective)
    while model.geometry is None:
        at += 1
        model, topology, ask = random_group_question(at, objective)
    devices = tuple(
        device.model_copy(update={"scratch": rng.choice([None, "block", "chunk"])})
        for device in topology.devices
    )
    return model, topology.model_copy(update={"devices": devices}), ask


def _ask_for_devices(
    rng: Random, model: ModelShape, names: list[str], asked: dict[str, Any]
) -> None:
    asked["tp"] = rng.choice(["auto"] * 9 + ["off", 2, 3])
    if rng.random() < 0.25:
        count = rng.randint(1 + (rng.random() < 0.8), len(names))
        asked["devices"] = tuple(rng.sample(names, count))
    known = list(asked.get("devices", names))
    if rng.random() < 0.2:
        asked["max_devices"] = rng.randint(min(2, len(known)), len(known))
    blocks = [block.name for block in model.blocks if block.name not in asked.get("without", ())]
    if blocks and rng.random() < 0.15:
        asked["pin"] = {rng.choice(blocks): rng.choice(known)}
    if rng.random() < 0.12:
        most = min(len(known), len(model.layers), asked.get("max_devices", 9))
        inner = rng.sample(range(1, len(model.layers)), rng.randint(1, most) - 1)
        ends = (0, *sorted(inner), len(model.layers))
        asked["stage_layers"] = tuple(b - a for a, b in pairwise(ends))


def random_model(rng: Random, num_layers: range) -> ModelShape:
    """Dense layers of 2 to 6 tiles, now and then without MLP, of experts, or cut otherwise."""
    tiles = rng.choice([2, 3, 4, 5, 6])
    hidden = rng.choice([256, 512, 1024])
    has_geometry, other_tiles = rng.random() < 0.3, rng.choice([None, None, 2, 4])
    rows: list[dict[str, Any]] = []
    alike = rng.random() < 0.3
    for index in range(rng.choice(num_layers)):
        if alike and rows and "kv_from" not in rows[-1]:
            rows.append(rows[-1])
            continue
        count = other_tiles if other_tiles and rng.random() < 0.3 else tiles
        rows.append(_layer(rng, rows[:index], count, has_geometry))
    embed = rng.choice([0, 5, 20, 40]) * MIB
    tied = bool(embed) and rng.random() < 0.4
    head = embed + rng.choice([0, 1000]) if tied else rng.choice([0, 5, 30]) * MIB
    place = rng.choice(["any", "any", "first", "last"])
    aux = Block(name="aux", weight_bytes=rng.randint(1, 20) * MIB, workspace_bytes=MIB, place=place)
    fields = {"geometry": {"norm_eps": 1e-5}, "vocab_size": 4096} if has_geometry else {}
    return build_model([Layer.model_validate(row) for row in rows], embed=embed, head=head,
                       tied=tied and head > 0, hidden_size=hidden,
                       blocks=(aux,) if rng.random() < 0.25 else (), **fields)  # fmt: skip


def _layer(
    rng: Random, before: list[dict[str, Any]], tiles: int, has_geometry: bool
) -> dict[str, Any]:
    mixer: dict[str, Any] = {"kind": "attention", "weight_bytes": rng.randint(2, 20) * MIB + 77}
    row: dict[str, Any] = {"mixer": mixer, "mlp": _mlp(rng, tiles)}
    owners = [i for i, other in enumerate(before)
              if "kv_from" not in other and other["mixer"].get("window") is None]  # fmt: skip
    if owners and rng.random() < 0.08:
        row["kv_from"] = rng.choice(owners)
    elif has_geometry:
        mixer |= {"num_heads": 8, "num_kv_heads": rng.choice([2, 8]), "head_dim": 64}
        mixer["window"] = rng.choice([None, None, 100])
    else:
        mixer["kv_bytes_per_token"] = rng.choice([0, 512, 4096, 16384])
        mixer["window"] = rng.choice([None, None, 100])
    row["state_bytes_per_slot"] = rng.choice([0, 0, MIB])
    row["workspace_bytes"] = rng.choice([0, 0, 0, MIB])
    if rng.random() < 0.1:
        row["flops_per_token"] = rng.choice([1e6, 3e8])
    return row


def _mlp(rng: Random, tiles: int) -> dict[str, Any] | None:
    kind = rng.random()
    size = rng.randint(4, 60) * MIB + rng.randint(0, 999)
    if kind < 0.05:
        return None
    if kind < 0.1:
        return {"kind": "moe", "num_experts": 8, "experts_per_token": 2, "expert_bytes": size // 8}
    if kind < 0.13:
        return {"kind": "swiglu", "weight_bytes": size}  # bytes only: never cut
    inner = tiles * rng.choice([64, 64, 50]) + rng.choice([0, 0, 1])
    return {"kind": rng.choice(["swiglu", "swiglu", "mlp"]), "weight_bytes": size,
            "intermediate_size": inner, "tiles": tiles,
            "uncut_bytes": rng.choice([0, 0, 4096])}  # fmt: skip


def random_topology(
    rng: Random, model: ModelShape, objective: str, num_devices: Sequence[int]
) -> Topology:
    """Budgets around the model's bytes over the number of devices; some devices are alike."""
    count = rng.choice(num_devices)
    whole = sum(layer.weight_bytes for layer in model.layers)
    whole += sum(block.resident_bytes for block in model.blocks)
    low, high = rng.choice([(0.7, 1.6), (1, 3), (2, 5)])
    hosts = ["h0"] if rng.random() < 0.7 else ["h0", "h1"]
    is_even = (
        count < 5 and rng.random() < 0.3
    )  # links are alike, so that equal devices may be exchanged
    devices: list[Any] = []
    for index in range(count):
        if devices and rng.random() < (0.7 if is_even else 0.3):
            devices.append(devices[-1].model_copy(update={"name": f"g{index}"}))
            continue
        free = int(whole * rng.uniform(low, high) / count) + 16 * MIB
        rates: dict[str, Any] = {"tflops": {"bfloat16": rng.choice([5.0, 60.0])}}
        if rng.random() < 0.3:
            rates = {"matmul_points": [(16, rng.uniform(1, 2)), (256, rng.uniform(20, 60))],
                     "attention_tflops": 7.0 + index, "row_block": 7 + index}  # fmt: skip
        elif objective != "prefill" and rng.random() < 0.2:
            rates = {}
        points = [(MIB, rng.uniform(5, 9)), (32 * MIB, rng.uniform(60, 300))]
        devices.append(build_device(
            f"g{index}", free, gb_s=rng.choice([50.0, 200.0, 936.0]),
            read_points=points if rng.random() < 0.3 else None, host=rng.choice(hosts),
            overhead_bytes=rng.choice([0, 2 * MIB]), reserve_bytes=rng.choice([0, MIB]),
            launch_us=rng.choice([0.0, 2.5]), **rates,
            dtypes=("float32",) if rng.random() < 0.03 else ("bfloat16", "float32"),
        ))  # fmt: skip
    rng.shuffle(devices)
    names = [device.name for device in devices]
    return build_topology(
        devices, links={} if is_even else _links(rng, names),
        exchanges=() if is_even and rng.random() < 0.7 else _exchanges(rng, names), gb_s=50.0,
        latency_us=rng.choice([2.0, 2.0, 20.0]),
    )  # fmt: skip


def _links(rng: Random, names: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    rows = {}
    trunks = rng.choice([None, None, ["t0"], ["t0", "t1"]])
    slowest = rng.choice([3.0, 20.0, 300.0])
    for pair in permutations(names, 2):
        row: dict[str, Any] = {"latency_us": rng.choice([1.0, 2.5, slowest]),
                               "bandwidth_gb_s": rng.choice([1.0, 12.0, 100.0])}  # fmt: skip
        if rng.random() < 0.2:
            row["points"] = [(2048, rng.uniform(1, 6)), (262144, rng.uniform(8, 60))]
        if trunks and rng.random() < 0.6:
            row["trunk"] = rng.choice(trunks)
        rows[pair] = row
    return {pair: row for pair, row in rows.items() if rng.random() < 0.9}


def _exchanges(rng: Random, names: list[str]) -> tuple[Exchange, ...]:
    """Some sets of devices, on one host or two, were measured together."""
    sets = [group for count in (2, 3, 4) for group in combinations(names, count)]
    return tuple(
        _with_more(Exchange(group=tuple(rng.sample(group, len(group))),
                            points=((2048, rng.uniform(1, 20)), (262144, rng.uniform(20, 90)))))
        for group in sets if rng.random() < 0.2
    )  # fmt: skip


def _with_more(row: Exchange) -> Exchange:
    """Half of them tell of owned mixers, half of what is lost at once."""
    rng = Random(f"{row.group}/{row.points}")
    owned = ((2048, rng.uniform(1, 20)), (262144, rng.uniform(20, 120)))
    more = {"owned_points": rng.choice([None, owned]),
            "slowdown": rng.choice([1.0, rng.uniform(1, 1.5)])}  # fmt: skip
    return row.model_copy(update=more)
