"""One model on two cards, in one process and in a process a card: what NCCL and its hosts cost.

Prints one JSON line: median us of a decode step, prompt tokens a second, what the driver's rank
spends on an exchange of one layer, and MiB that the wires took of each card. Weights are random,
made on the device, and the same in every shape; so must the tokens be, which is asserted. No time
is.

    python tests/bench/processes_gpu.py [--shapes "1,2,tp2,tp2o"] [--chunk 512] [--tokens 128]

Shapes: one card; two stages; a TP group of two, mixers on both, or on one (tp2o).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from decode_gpu import MODELS, commit
from plancc_apart import plan_on_cards
from plancc_gpu_plans import BACKENDS, cards_here
from plancc_group_plans import stage
from plancc_plans import write_plan
from plancc_random_run import fill

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.comm import Group, open_store
from plancc.executor.engine import Engine
from plancc.executor.failures import LinkBroken
from plancc.executor.opening import OpenSeat, link_up, open_models
from plancc.executor.pulse import Pulse
from plancc.executor.request import Outcome, Request, Sampled
from plancc.executor.seats import seats_of
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan, read_plan

HERE, RUNS, LIMIT_S, MIB = "127.0.0.1", 3, 200, 2**20


def stages_of(shape: str, layers: int) -> list[PlacedStage]:
    if shape.startswith("tp2"):
        mixer: Any = "owned" if shape.endswith("o") else "replicated"
        return [stage((0, layers), "gpu0", "gpu1", tiles=(8,), mixer=mixer)]
    cuts = [round(i * layers / int(shape)) for i in range(int(shape) + 1)]
    return [stage(span, f"gpu{i}") for i, span in enumerate(pairwise(cuts))]


def fill_all(opened: tuple[OpenSeat, ...]) -> None:
    for item in opened:
        for piece in item.model.pieces():
            fill(piece, item.model.parameter(piece))
        torch.cuda.synchronize(item.model.device)
        torch.cuda.empty_cache()


def free_bytes(opened: tuple[Any, ...]) -> dict[str, int]:
    return {item.seat.device: int(torch.cuda.mem_get_info(item.model.device)[0])
            for item in opened}  # fmt: skip


class Worker:
    """One process of a plan: its ranks, and the driver's measurements where it has the head."""

    def __init__(self, plan: Plan, name: str, port: int) -> None:
        torch.set_grad_enabled(False)
        names = [worker.name for worker in plan.runtime.workers]
        opened = open_models(plan, tuple(s for s in seats_of(plan) if s.worker == name),
                             BACKENDS["Cards"])  # fmt: skip
        fill_all(opened)
        group = (Group(open_store(HERE, port), names.index(name), len(names), HERE)
                 if len(names) > 1 else None)  # fmt: skip
        free = free_bytes(opened)
        self.plan = plan
        self.engine = Engine(plan) if any(item.seat.is_driver for item in opened) else None
        self.ranks = link_up(plan, opened, group, Pulse(), on_report=lambda report: None,
                             on_logits=self.engine.on_logits if self.engine else _none)  # fmt: skip
        now = free_bytes(opened)
        self.wires_mib = {device: (free[device] - now[device]) // MIB for device in free}

    def follow(self) -> None:
        """Until the driver has gone."""
        with suppress(LinkBroken):
            while True:
                if not self.ranks.advance():
                    self.ranks.wait()

    def answer(self, prompt: int, tokens: int, **fields: Any) -> tuple[list[int], Outcome]:
        assert self.engine is not None
        vocab = self.plan.model.vocab_size or 1
        ids = tuple(7919 * (i + 1) % vocab for i in range(prompt))
        asked = Request(prompt_ids=ids, max_tokens=tokens, **fields)
        *rows, outcome = self.engine.generate(asked)
        assert isinstance(outcome, Outcome)
        return [row.token for row in rows if isinstance(row, Sampled)], outcome

    def measure(self, tokens: int, prompts: tuple[int, ...]) -> dict[str, Any]:
        assert self.engine is not None
        self.engine.attach(self.ranks)
        assert self.ranks.driver is not None
        self.answer(64, 200)  # compiles, and records graphs of every length that follows
        found: dict[str, Any] = {}
        for prompt in prompts:
            self.answer(prompt, 8)
            steps, prefills, said = [], [], []
            for _ in range(RUNS):
                said, outcome = self.answer(prompt, tokens)
                steps.append(statistics.median(outcome.decode_ns))
                prefills.append(outcome.prefill_ns)
            found[f"after {prompt}"] = {
                "step_us": round(statistics.median(steps) / 1e3, 1),
                "prefill_tok_s": round(prompt * 1e9 / statistics.median(prefills)),
                "tokens": f"{crc32(str(said).encode()):08x}"}  # fmt: skip
        self.answer(64, 8, wants_times=True)
        self.answer(64, 40, wants_times=True)
        times = self.ranks.driver.times
        found["segments_us"] = round(statistics.median(times.run_ns) / 1e3, 1)
        if times.exchange_ns:
            layers = len(self.plan.model.layers)
            us = statistics.median(times.exchange_ns) / 1e3 / layers
            found["exchange_us_a_layer"] = round(us, 1)
        return found


def _none(step: object, logits: torch.Tensor) -> None:
    raise AssertionError("only the driver samples")


def run_worker(asked: argparse.Namespace) -> None:
    worker = Worker(read_plan(asked.plan), asked.worker, asked.port)
    out = asked.plan.with_suffix(f".{asked.worker}.json")
    out.write_text(json.dumps({"wires_mib": worker.wires_mib}))
    if worker.engine is None:
        worker.follow()
    else:
        print(json.dumps(worker.measure(asked.tokens, asked.prompts)), flush=True)
    os._exit(0)  # NCCL would wait for the others before it goes


def run_plan(plan: Plan, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Start the plan's processes; what the driver's measured, and each one's wires."""
    path = write_plan(plan, folder / "plan.json")
    store = open_store(HERE)
    names = [worker.name for worker in plan.runtime.workers]
    driver = next(seat.worker for seat in seats_of(plan) if seat.is_driver)
    words = ["--plan", path, "--port", store.port, "--tokens", asked.tokens, "--prompts",
             ",".join(map(str, asked.prompts))]  # fmt: skip
    children = {
        name: subprocess.Popen(
            [sys.executable, "-P", __file__, *map(str, words), "--worker", name],
            stdout=subprocess.PIPE if name == driver else subprocess.DEVNULL,
        )
        for name in names
    }
    try:
        text, _ = children[driver].communicate(timeout=LIMIT_S)
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    if len(names) > 1:
        found["wires_mib"] = {
            device: mib for name in names
            for device, mib in json.loads(path.with_suffix(f".{name}.json").read_text())[
                "wires_mib"].items()
        }  # fmt: skip
    return found


def measure(manifest: ModelManifest, shape: str, workers: str, asked: argparse.Namespace) -> Any:
    row: dict[str, Any] = {"shape": shape, "processes": workers, "chunk": asked.chunk}
    plan = plan_on_cards(manifest, stages_of(shape, len(manifest.layers)), workers=workers,
                         uuids=cards_here(), context=8448, prefill_chunk=asked.chunk)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        try:
            return row | run_plan(plan, Path(folder), asked)
        except Exception as error:  # the other shapes are worth knowing
            return row | {"error": repr(error)[:300]}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", default="1,2,tp2,tp2o")
    parser.add_argument("--model", choices=sorted(MODELS), default="llama-8b")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=_numbers, default=(64, 4096))
    for name, kind in (("--plan", Path), ("--worker", str), ("--port", int)):
        parser.add_argument(name, type=kind, help="of a process of the plan; not for people")
    asked = parser.parse_args()
    if asked.worker:
        run_worker(asked)
        return
    shape = read_architecture(MODELS[asked.model], where="config.json", name=asked.model,
                              tied=None).shape  # fmt: skip
    manifest = ModelManifest.model_validate(shape.model_dump() | {"format": "plancc.model/1"})
    rows = []
    for name in asked.shapes.split(","):
        for workers in ("host",) if name == "1" else ("host", "device"):
            rows.append(measure(manifest, name, workers, asked))
            print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"bench": "processes_gpu", "device": torch.cuda.get_device_name(),
                      "torch": torch.__version__, "model": asked.model, "commit": commit(),
                      "rows": rows}))  # fmt: skip
    for prompt in asked.prompts:
        said = {row[f"after {prompt}"]["tokens"] for row in rows if f"after {prompt}" in row}
        assert len(said) <= 1, f"tokens after {prompt} differ: {said}"


if __name__ == "__main__":
    main()
