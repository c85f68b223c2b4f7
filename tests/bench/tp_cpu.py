"""MLP-only TP against a pipeline over the same two CPU workers of one thread: one JSON line.

    python -P tests/bench/tp_cpu.py [--runs 3] [--tokens 16] [--smollm2] [--quick]

A random llama (hidden 2,048, intermediate 8,192, 8 layers, float32: 1.9 GB) is measured by
planprobe, compiled as a pipeline, as a group of two, and as the compiler likes, and run in turns.
Medians beside what each plan predicts; nothing is asserted. --smollm2 adds SmolLM2, whose rows are
so short that the compiler should choose a pipeline or one device.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
ENTRY = "from plancc.{}.{} import main; main()"
CONTEXT, PROMPT = 256, 64
SHAPES = {
    "pipeline": ("--tp", "off", "--devices", "cpu0,cpu1", "--stage-layers"),
    "tp": ("--tp", "2"),
    "chosen": ("--margin", "0%"),
}


def main() -> None:
    flags = _flags()
    answer: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as scratch:
        topology = Path(scratch) / "topo.yaml"
        quick = ["--quick"] if flags.quick else []
        _run("executor.probe_cli", "-o", topology, "--cpu-devices", 2, "--cpu-threads", 1,
             "--cpu-memory", "4GiB", "--dtype", "float32", *quick)  # fmt: skip
        models = {"llama_2048": _random_llama()}
        if flags.smollm2:
            models["smollm2"] = ROOT / ".demo" / "SmolLM2-135M-Instruct-f32"
        for name, folder in models.items():
            answer[name] = _compare(folder, topology, Path(scratch), flags)
    print(json.dumps(answer))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--smollm2", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a quick planprobe")
    return parser.parse_args()


def _random_llama() -> Path:
    """Written once; kept beside the models of the demo."""
    from plancc_checkpoints import TinyLlama, write_checkpoint

    folder = ROOT / ".demo" / "random-llama-2048"
    if not (folder / "model.safetensors").exists():
        spec = TinyLlama(num_layers=8, hidden_size=2048, intermediate_size=8192, num_heads=16,
                         num_kv_heads=8, vocab_size=1024)  # fmt: skip
        write_checkpoint(folder, spec)
    return folder


def _compare(
    folder: Path, topology: Path, scratch: Path, flags: argparse.Namespace
) -> dict[str, Any]:
    model = scratch / f"{folder.name}.yaml"
    _run("compiler.cli", "manifest", folder, "-o", model)
    plans = {name: _plan(name, model, topology, scratch) for name in SHAPES}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in plans}
    for _ in range(flags.runs):
        for name, plan in plans.items():
            rows[name].append(_bench(plan, folder, flags.tokens))
    found = {name: _summary(plans[name], runs) for name, runs in rows.items()}
    speed = {name: row["decode_tokens_per_s"] for name, row in found.items()}
    promise = {name: row["predicted_tokens_per_s"] for name, row in found.items()}
    return found | {
        "tp_over_pipeline": round(speed["tp"] / speed["pipeline"], 3),
        "predicted_tp_over_pipeline": round(promise["tp"] / promise["pipeline"], 3),
    }


def _plan(name: str, model: Path, topology: Path, scratch: Path) -> Path:
    plan = scratch / f"{model.stem}.{name}.json"
    words = list(SHAPES[name])
    if words[-1] == "--stage-layers":
        layers = _num_layers(model)
        words.append(f"{layers - layers // 2},{layers // 2}")
    _run("compiler.cli", "compile", model, topology, "-o", plan, "--context", CONTEXT,
         "--prompt", PROMPT, *words)  # fmt: skip
    return plan


def _num_layers(model: Path) -> int:
    from plancc.ir.manifest import read_manifest

    return len(read_manifest(model).layers)


def _bench(plan: Path, folder: Path, tokens: int) -> dict[str, Any]:
    report = _run("executor.cli", plan, "--bench", "--json", "--weights", folder,
                  "--max-tokens", tokens)  # fmt: skip
    found: dict[str, Any] = json.loads(report)
    return found


def _summary(plan: Path, runs: list[dict[str, Any]]) -> dict[str, Any]:
    stages = json.loads(plan.read_text())["stages"]
    rates = [run["decode"]["tokens_per_s"] for run in runs]
    exchanges = [max(stage["exchange_ms"] or 0 for stage in run["stages"]) for run in runs]
    return {
        "shape": "; ".join(
            f"{stage['layers'][0]}..{stage['layers'][1] - 1} {stage['mixer']} "
            + ",".join(f"{rank['device']}:{rank['mlp_tiles']}" for rank in stage["ranks"])
            for stage in stages
        ),
        "decode_tokens_per_s": round(median(rates), 2),
        "decode_all": [round(rate, 2) for rate in rates],
        "predicted_tokens_per_s": round(runs[0]["decode"]["predicted_tokens_per_s"], 2),
        "prompt_tokens_per_s": round(median(run["prefill"]["tokens_per_s"] for run in runs), 1),
        "exchange_ms": round(median(exchanges), 2),
        "predicted_exchange_ms": round(
            max(stage["predicted_exchange_ms"] for stage in runs[0]["stages"]), 2
        ),
    }


def _run(module: str, *words: object) -> str:
    room, name = module.split(".")
    command = [sys.executable, "-P", "-c", ENTRY.format(room, name), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
