"""Does the solver choose what is faster? A pipeline and a group of two on two CPU workers, over
links slowed to a range of rates: one JSON line.

    python -P tests/bench/tp_choice.py [--tokens 12] [--rounds 3] [--rates 0,400,...]

Wants root, unshare and tc.

The two devices are measured once by planprobe as they are. Each rate is then made real in a network
namespace of its own (a token bucket on its loopback), and told to the compiler as so much more time
for so many bytes. Both shapes are compiled and run there by turns, since a shape by itself differs
by a fifth from one run to the next, and what the compiler likes is compared with what was faster by
the medians. Nothing is asserted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from tp_cpu import ENTRY, ROOT, _plan, _random_llama, _run

RATES_MBIT = (0, 400, 200, 100, 50, 25, 12)
MODELS = {"llama_2048": RATES_MBIT, "smollm2": (0, 200, 50, 12)}
ALIKE = 0.03  # rates that differ by less are a tie: either choice is right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=lambda text: tuple(map(int, text.split(","))))
    flags = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        _run("executor.probe_cli", "-o", scratch / "topo.yaml", "--cpu-devices", 2,
             "--cpu-threads", 1, "--cpu-memory", "4GiB", "--dtype", "float32")  # fmt: skip
        for name, rates in MODELS.items():
            weights = _random_llama() if name == "llama_2048" else (
                ROOT / ".demo" / "SmolLM2-135M-Instruct-f32")  # fmt: skip
            _run("compiler.cli", "manifest", weights, "-o", scratch / f"{name}.yaml")
            for rate in flags.rates or rates:
                rows.append({"model": name, **ask(scratch, name, weights, rate, flags)})
                print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({
        "bench": "tp_choice", "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
        "right": sum(row["is_right"] for row in rows), "of": len(rows), "rows": rows,
    }))  # fmt: skip


def ask(
    scratch: Path, name: str, weights: Path, rate: int, flags: argparse.Namespace
) -> dict[str, Any]:
    topology, model = slowed(scratch / "topo.yaml", rate), scratch / f"{name}.yaml"
    plans = {shape: _plan(shape, model, topology, scratch) for shape in ("pipeline", "tp")}
    runs: dict[str, list[float]] = {shape: [] for shape in plans}
    promise = {}
    for shape, plan in [*plans.items()] * flags.rounds:
        report = run_at(rate, plan, weights, flags.tokens)["decode"]
        runs[shape].append(round(report["tokens_per_s"], 2))
        promise[shape] = round(report["predicted_tokens_per_s"], 2)
    speed = {shape: statistics.median(found) for shape, found in runs.items()}
    chosen = "tp" if promise["tp"] > promise["pipeline"] else "pipeline"
    faster = max(speed, key=lambda shape: speed[shape])
    is_tie = min(speed.values()) > (1 - ALIKE) * max(speed.values())
    return {"mbit": rate or "as it is", "tok_s": speed, "runs": runs, "predicted": promise,
            "chosen": chosen, "faster": "alike" if is_tie else faster,
            "is_right": is_tie or chosen == faster}  # fmt: skip


def slowed(topology: Path, rate: int) -> Path:
    """The same machine with links of a rate: every byte costs so much more, and the one queue of
    the loopback carries both directions."""
    if rate == 0:
        return topology
    data = yaml.safe_load(topology.read_text())
    for row in data["links"]:
        row |= {"points": _later(row["points"], 8 / rate), "trunk": "loopback"}
    for row in data["exchanges"]:
        count = len(row["group"])
        row["points"] = _later(row["points"], count * 8 / rate)
        if "owned_points" in row:
            row["owned_points"] = _later(row["owned_points"], 2 * (count - 1) * 8 / rate)
    path = topology.with_name(f"topo-{rate}.yaml")
    path.write_text(yaml.safe_dump(data))
    return path


def _later(points: list[list[float]], us_a_byte: float) -> list[list[float]]:
    return [[size, round(us + size * us_a_byte, 2)] for size, us in points]


def run_at(rate: int, plan: Path, weights: Path, tokens: int) -> dict[str, Any]:
    """planrun --bench in a namespace whose loopback passes so many Mbit/s."""
    words = [plan, "--bench", "--json", "--weights", weights, "--max-tokens", tokens,
             "--prompt-tokens", 4, "--repeat", 2]  # fmt: skip
    command = [sys.executable, "-P", "-c", ENTRY.format("executor", "cli"), *map(str, words)]
    bucket = (
        f"tc qdisc add dev lo root tbf rate {rate}mbit burst 3200 latency 30s && " if rate else ""
    )
    shell = f'ip link set lo mtu 1500 up && {bucket}exec "$@"'
    done = subprocess.run(["unshare", "-n", "sh", "-c", shell, "sh", *command],
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
