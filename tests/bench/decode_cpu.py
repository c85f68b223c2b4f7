"""SmolLM2 on one CPU device against transformers: one JSON line on stdout.

    python -P tests/bench/decode_cpu.py [--threads 2] [--runs 5] [--profile]

Runs of `planrun --bench` and of transformers' `generate` take turns: the same weights and dtype,
the same number of threads, a prompt of 128 tokens, 64 greedy tokens. Medians; nothing is asserted.
--profile adds what each kernel of a decode step takes, over all layers.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"float32": "SmolLM2-135M-Instruct-f32", "bfloat16": "SmolLM2-135M-Instruct"}
PROMPT_TOKENS, NEW_TOKENS, CONTEXT = 128, 64, 512
ENTRY = "from plancc.{}.cli import main; main()"
TOPOLOGY = """\
format: plancc.topology/1
name: here
hosts: [{{name: h0, address: 127.0.0.1}}]
devices:
  - {{name: cpu0, host: h0, kind: cpu, total_bytes: 4 GiB, free_bytes: 4 GiB, read_gb_s: 20,
     launch_us: 5, threads: {threads}}}
"""


def main() -> None:
    flags = _flags()
    if flags.transformers:
        print(json.dumps(_transformers(Path(flags.transformers), flags.threads)))
    elif flags.kernels:
        print(json.dumps(_kernels(Path(flags.kernels), flags.threads)))
    else:
        print(json.dumps(_machine(flags.threads) | {t: _compare(t, flags) for t in flags.dtypes}))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtypes", nargs="+", default=list(FOLDERS), choices=list(FOLDERS))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--transformers", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--kernels", metavar="DIR", help=argparse.SUPPRESS)
    return parser.parse_args()


def _machine(threads: int) -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in cpu.read_text().splitlines()
             if line.startswith("model name")] if cpu.exists() else []  # fmt: skip
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
            "threads": threads, "commit": commit or "unknown",
            "load": round(os.getloadavg()[0], 1), "prompt": PROMPT_TOKENS,
            "new_tokens": NEW_TOKENS}  # fmt: skip


def _compare(dtype: str, flags: argparse.Namespace) -> dict[str, Any]:
    folder = ROOT / ".demo" / FOLDERS[dtype]
    if not folder.is_dir():
        raise SystemExit(f"{folder}: not there; `make weights` fetches SmolLM2")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        plan = _plan(folder, Path(scratch), flags.threads)
        for _ in range(flags.runs):
            ours.append(_planrun(plan, folder))
            theirs.append(_child("--transformers", folder, flags.threads))
    answer: dict[str, Any] = {"plancc": _medians(ours), "transformers": _medians(theirs)}
    answer["faster"] = {
        name: round(answer["plancc"][name] / answer["transformers"][name], 2)
        for name in ("decode_tokens_per_s", "prompt_tokens_per_s")
    }
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    rate = answer["plancc"]["decode_tokens_per_s"]
    answer["weights_gb_s"] = round(weights * rate / 1e9, 1)
    if flags.profile:
        answer["kernels"] = _child("--kernels", folder, flags.threads)
    return answer


def _medians(runs: list[dict[str, float]]) -> dict[str, Any]:
    rows = {name: [run[name] for run in runs] for name in runs[0]}
    return {name: round(median(values), 2) for name, values in rows.items()} | {
        f"{name}_all": [round(value, 1) for value in values] for name, values in rows.items()
    }


def _plan(folder: Path, scratch: Path, threads: int) -> Path:
    topology, plan = scratch / "topo.yaml", scratch / "plan.json"
    topology.write_text(TOPOLOGY.format(threads=threads))
    _run("compiler", "manifest", folder, "-o", scratch / "model.yaml")
    _run("compiler", "compile", scratch / "model.yaml", topology, "-o", plan, "--context", CONTEXT)
    return plan


def _planrun(plan: Path, folder: Path) -> dict[str, float]:
    report = json.loads(_run("executor", plan, "--bench", "--json", "--weights", folder,
                             "--max-tokens", NEW_TOKENS))  # fmt: skip
    assert report["prefill"]["tokens"] == PROMPT_TOKENS
    return {"decode_tokens_per_s": report["decode"]["tokens_per_s"],
            "prompt_tokens_per_s": report["prefill"]["tokens_per_s"]}  # fmt: skip


def _run(room: str, *words: object) -> str:
    command = [sys.executable, "-P", "-c", ENTRY.format(room), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def _child(flag: str, folder: Path, threads: int) -> dict[str, float]:
    command = [sys.executable, "-P", __file__, flag, str(folder), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _transformers(folder: Path, threads: int) -> dict[str, float]:
    """Rates of one `generate`: the clock is read as each token comes, as for planrun."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation import BaseStreamer

    class Clock(BaseStreamer):
        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: torch.Tensor) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            pass

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    ids = [[7919 * (index + 1) % 49152 for index in range(PROMPT_TOKENS)]]
    clock = Clock()
    for count in (8, NEW_TOKENS):  # the first warms up
        clock.times.clear()
        options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False}
        model.generate(torch.tensor(ids), eos_token_id=None, pad_token_id=0, streamer=clock,
                       **options)  # fmt: skip
    prompt, first, *_, last = clock.times
    return {"decode_tokens_per_s": (NEW_TOKENS - 1) / (last - first),
            "prompt_tokens_per_s": PROMPT_TOKENS / (first - prompt)}  # fmt: skip


def _kernels(folder: Path, threads: int) -> dict[str, Any]:
    """us of each stage in one layer of a decode step at a short context, best of 30."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import torch
    from plancc_cpu_ranks import CpuRanks, folder_model

    from plancc.kernels.stages import ROWS_LAYER, Stages, stage_array

    torch.set_num_threads(1)  # its threads would spin beside ours after each copy of logits
    shape, tensors = folder_model(folder)
    ranks = CpuRanks(shape, tensors, context=CONTEXT, threads=threads)
    ranks.prompt(0, range(PROMPT_TOKENS))
    item = next(iter(tensors.values())).element_size()
    prefix, size = "model.layers.0.", {name: t.numel() * item for name, t in tensors.items()}
    read = {
        ("linear_rows", 0): [f"self_attn.{name}_proj" for name in "qkv"],
        ("linear_rows", 1): ["self_attn.o_proj"],
        ("gate_up_rows", 0): ["mlp.gate_proj", "mlp.up_proj"],
        ("down_rows", 0): ["mlp.down_proj"],
    }

    def step_us(stages: Stages) -> float:
        array, times = stage_array(stages), []
        step = ranks.ranks[0]._rows.step
        step["each_layer"], step["num_each_layer"] = array.ctypes.data, len(stages)
        for _ in range(30):
            start = time.perf_counter()
            ranks.decode({0: 5})
            times.append(time.perf_counter() - start)
            ranks.lengths[0] -= 1
        return min(times) * 1e6

    none = step_us(())
    found = {"embedding, head and step": {"us": round(none, 1), "gb_s": round(
        size["model.embed_tokens.weight"] / none / 1e3, 1)}}  # fmt: skip
    for function, variant, most in ROWS_LAYER:
        key = (function.source.__name__, variant)
        us = (step_us(((function, variant, most),)) - none) / len(shape.layers)
        weights = sum(size[f"{prefix}{name}.weight"] for name in read.get(key, ()))
        found[f"{key[0]} {variant}"] = {"us": round(us, 1)}
        if weights:
            found[f"{key[0]} {variant}"]["gb_s"] = round(weights / us / 1e3, 1)
    found["whole step"] = {"us": round(step_us(ROWS_LAYER), 1)}
    return found


if __name__ == "__main__":
    main()
