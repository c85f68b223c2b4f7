"""Generated questions for timing: layers that all differ, on devices that all differ or are equal.

MLPs have an intermediate_size, so the same files are asked as pipelines (--tp off) and with groups.
"""

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import yaml

MIB = 2**20
HIDDEN, ITEM, COLUMNS = 8192, 2, 256  # MLPs come in whole numbers of 256 columns
BLOCK_BYTES = 2000 * MIB  # embedding, head


def question(folder: Path, layers: int, devices: int, seed: int,
             *, equal: bool = False) -> tuple[Path, Path]:  # fmt: skip
    """(model, topology) files; the devices hold the model with some room to cut it."""
    rng = random.Random(1000 * devices + seed)
    model = _model(rng, layers)
    topology = _topology(rng, _size_bytes(model), devices, equal=equal)
    kind = "equal" if equal else "unequal"
    names = (f"{what}-{layers}x{devices}-{kind}-{seed}.yaml" for what in ("model", "topo"))
    paths = [folder / name for name in names]
    for path, document in zip(paths, (model, topology), strict=True):
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    return paths[0], paths[1]


def _model(rng: random.Random, layers: int) -> dict[str, Any]:
    blocks = [("embed", "first"), ("head", "last")]
    return {
        "format": "plancc.model/1", "name": f"unequal-{layers}", "dtype": "bfloat16",
        "hidden_size": HIDDEN, "max_context": 32768,
        "layers": [_layer(rng) for _ in range(layers)],
        "blocks": [{"name": name, "weight_bytes": BLOCK_BYTES, "place": place}
                   for name, place in blocks],
    }  # fmt: skip


def _layer(rng: random.Random) -> dict[str, Any]:
    """150 to 400 MiB of attention, 400 to 1600 MiB of MLP."""
    inner = COLUMNS * rng.randrange(34, 134)
    return {
        "mixer": {"kind": "attention", "weight_bytes": rng.randrange(150 * MIB, 400 * MIB),
                  "kv_bytes_per_token": rng.choice([1024, 2048, 4096])},
        "mlp": {"kind": "swiglu", "weight_bytes": 3 * HIDDEN * ITEM * inner,
                "intermediate_size": inner},
    }  # fmt: skip


def _size_bytes(model: dict[str, Any]) -> int:
    layers = model["layers"]
    parts = (layer[part]["weight_bytes"] for layer in layers for part in ("mixer", "mlp"))
    return sum(parts) + 2 * BLOCK_BYTES


def _topology(rng: random.Random, size_bytes: int, devices: int, *, equal: bool) -> dict[str, Any]:
    """Budgets sum to 1.1 to 1.4 times the model, so every device is needed, or nearly."""
    share = [1.0 if equal else rng.uniform(0.5, 1.5) for _ in range(devices)]
    need = (size_bytes + devices * 800 * MIB) * rng.uniform(1.1, 1.4)
    draws = [_device(rng) for _ in range(devices)]
    rows = [
        {"name": f"gpu{i}", "host": "h0", "kind": "cuda", "total_bytes": int(need * part),
         "free_bytes": int(need * part)} | draws[0 if equal else i]
        for i, part in enumerate(part / sum(share) for part in share)
    ]  # fmt: skip
    pairs = list(permutations([row["name"] for row in rows], 2))
    links = [_link(rng) for _ in pairs]
    return {
        "format": "plancc.topology/1", "name": f"{'equal' if equal else 'unequal'}-{devices}",
        "hosts": [{"name": "h0", "address": "127.0.0.1"}], "devices": rows,
        "links": [{"from": one, "to": two, "mode": "staged"} | links[0 if equal else i]
                  for i, (one, two) in enumerate(pairs)],
    }  # fmt: skip


def _device(rng: random.Random) -> dict[str, Any]:
    return {"overhead_bytes": rng.randrange(500 * MIB, 1000 * MIB),
            "read_gb_s": round(rng.uniform(300, 1000), 1)}  # fmt: skip


def _link(rng: random.Random) -> dict[str, Any]:
    return {"latency_us": round(rng.uniform(10, 60), 1),
            "bandwidth_gb_s": round(rng.uniform(3, 24), 1)}  # fmt: skip
