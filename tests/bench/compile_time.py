"""How long plancc takes, as a whole process from cold: one JSON line on stdout.

    python -P tests/bench/compile_time.py [--seeds 20] [--long]

Wall seconds and the user CPU seconds of the child, which other work on the machine hardly moves.
Nothing is asserted: figures are for people, with the machine and the commit that they belong to.
"""

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "from plancc.compiler.cli import main; main()"
MIB = 2**20


def main() -> None:
    flags = _flags()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(_machine() | {"cases": _cases(Path(folder), flags)}))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="generated instances a size [5]")
    parser.add_argument("--long", action="store_true", help="128 x 8 and 128 x 16 too")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    return {"cpu": _cpu_model(), "cores": os.cpu_count(), "python": platform.python_version(),
            "commit": _commit(), "load": round(os.getloadavg()[0], 1)}  # fmt: skip


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cases(folder: Path, flags: argparse.Namespace) -> dict[str, Any]:
    models, topologies = ROOT / "plans" / "models", ROOT / "plans" / "topologies"
    pair = (models / "llama-3.1-70b.yaml", topologies / "mixed-8.yaml")
    plan = folder / "a.plan.json"
    cases = {"compile 70b on mixed-8": _runs(_compile(pair, plan) for _ in range(3))}
    cases["show"] = _runs(_plancc("show", plan) for _ in range(3))
    cases["diff"] = _runs(_plancc("diff", plan, plan) for _ in range(3))
    sizes = [(80, 8), *([(128, 8), (128, 16)] if flags.long else [])]
    for layers, devices in sizes:
        pairs = [_generated(folder, layers, devices, seed) for seed in range(flags.seeds)]
        name = f"compile {layers} unequal layers on {devices} unequal devices"
        cases[name] = _runs(_compile(pair, folder / "b.plan.json") for pair in pairs)
    return cases


def _compile(pair: tuple[Path, Path], plan: Path) -> dict[str, Any]:
    return _plancc("compile", *pair, "-o", plan)


def _plancc(*words: object) -> dict[str, Any]:
    """Wall and user CPU seconds of one run, and its exit code."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    command = [sys.executable, "-P", "-c", ENTRY, *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=False)
    wall = time.perf_counter() - start
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {"wall": wall, "user": user, "code": done.returncode}


def _runs(runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    rows = list(runs)
    wall, user = [row["wall"] for row in rows], [row["user"] for row in rows]
    return {
        "runs": len(rows),
        "exit_codes": sorted({row["code"] for row in rows}),
        "wall_s": {"median": round(median(wall), 2), "worst": round(max(wall), 2)},
        "user_s": {"median": round(median(user), 2), "worst": round(max(user), 2)},
    }


def _generated(folder: Path, layers: int, devices: int, seed: int) -> tuple[Path, Path]:
    """A model whose layers all differ, on devices that all differ and hold it with room to cut."""
    rng = random.Random(1000 * devices + seed)
    model, topology = _model(rng, layers), _topology(rng, layers, devices)
    paths = tuple(folder / f"{what}-{layers}x{devices}-{seed}.yaml" for what in ("model", "topo"))
    for path, document in zip(paths, (model, topology), strict=True):
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    return paths[0], paths[1]


def _model(rng: random.Random, layers: int) -> dict[str, Any]:
    return {
        "format": "plancc.model/1", "name": f"unequal-{layers}", "dtype": "bfloat16",
        "hidden_size": 8192, "max_context": 32768,
        "layers": [
            {"mixer": {"kind": "attention", "weight_bytes": rng.randrange(150 * MIB, 400 * MIB),
                       "kv_bytes_per_token": rng.choice([1024, 2048, 4096])},
             "mlp": {"kind": "swiglu", "weight_bytes": rng.randrange(400 * MIB, 1600 * MIB)}}
            for _ in range(layers)
        ],
        "blocks": [{"name": "embed", "weight_bytes": 2000 * MIB, "place": "first"},
                   {"name": "head", "weight_bytes": 2000 * MIB, "place": "last"}],
    }  # fmt: skip


def _topology(rng: random.Random, layers: int, devices: int) -> dict[str, Any]:
    """Budgets sum to 1.1 to 1.4 times a typical model: every device is needed, or nearly."""
    share = [rng.uniform(0.5, 1.5) for _ in range(devices)]
    need = (1275 * layers + 4000) * MIB + devices * 800 * MIB
    sizes = [int(need * rng.uniform(1.1, 1.4) * part / sum(share)) for part in share]
    rows = [
        {"name": f"gpu{i}", "host": "h0", "kind": "cuda", "total_bytes": size, "free_bytes": size,
         "overhead_bytes": rng.randrange(500 * MIB, 1000 * MIB),
         "read_gb_s": round(rng.uniform(300, 1000), 1)}
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    links = [
        {"from": one["name"], "to": two["name"], "mode": "staged",
         "latency_us": round(rng.uniform(10, 60), 1),
         "bandwidth_gb_s": round(rng.uniform(3, 24), 1)}
        for one, two in permutations(rows, 2)
    ]  # fmt: skip
    return {"format": "plancc.topology/1", "name": f"unequal-{devices}",
            "hosts": [{"name": "h0", "address": "127.0.0.1"}],
            "devices": rows, "links": links}  # fmt: skip


if __name__ == "__main__":
    main()
