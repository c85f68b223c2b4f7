"""One model in several shapes, on this machine's cards: what stages, hops and exchanges cost.

Prints one JSON line. Weights are random, made on the device, and the same in every shape, so the
tokens must be; a table of what differs goes to stderr. Asserts no time.

    python tests/bench/plans_gpu.py [--shapes "1,2,3,tp2,tp4"] [--modes Cards:p2p,Cards:staged]

Mode Cards deals the ranks over all cards, OneCard has all on the first.
"""

import argparse
import gc
import hashlib
import json
import statistics
import sys
from itertools import pairwise, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from decode_gpu import MODELS, commit
from plancc_gpu_groups import part_of
from plancc_gpu_plans import BACKENDS, on_cards
from plancc_group_plans import group_plan, stage

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.engine import Engine
from plancc.executor.opening import link_up, open_models
from plancc.executor.pulse import Pulse
from plancc.executor.request import Outcome, RankReport, Request, Sampled
from plancc.executor.seats import seats_of
from plancc.executor.step_codec import ReportAsk
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan

TILES, RUNS = 16, 3


def stages_of(shape: str, layers: int) -> list[PlacedStage]:
    """`3`: so many equal stages; `tp2`: one group; `2xtp2`: stages of groups."""
    count, _, ranks = shape.partition("tp") if "tp" in shape else (shape, "", "1")
    num_stages, num_ranks = int(count.rstrip("x") or 1), int(ranks)
    cuts = [round(i * layers / num_stages) for i in range(num_stages + 1)]
    tiles = [round(i * TILES / num_ranks) for i in range(1, num_ranks)]
    mixer: Any = "replicated" if num_ranks > 1 else "single"
    return [
        stage(span, *(f"cpu{index * num_ranks + r}" for r in range(num_ranks)), tiles=tiles,
              mixer=mixer)
        for index, span in enumerate(pairwise(cuts))
    ]  # fmt: skip


class Run:
    """An opened plan with random weights, and its driver."""

    def __init__(self, plan: Plan, mode: str) -> None:
        self.plan, self.reports = plan, list[RankReport]()
        opened = open_models(plan, seats_of(plan), BACKENDS[mode])
        for item in opened:
            for piece in item.model.pieces():
                fill(piece, item.model.parameter(piece))
        torch.cuda.synchronize()
        self.engine = Engine(plan)
        self.ranks = link_up(plan, opened, None, Pulse(), on_logits=self.engine.on_logits,
                             on_report=self.reports.append)  # fmt: skip
        self.engine.attach(self.ranks)

    def answer(self, prompt: int, tokens: int, **fields: Any) -> tuple[list[int], Outcome]:
        vocab = self.plan.model.vocab_size or 1
        ids = tuple(7919 * (i + 1) % vocab for i in range(prompt))
        asked = Request(prompt_ids=ids, max_tokens=tokens, **fields)
        *rows, outcome = self.engine.generate(asked)
        assert isinstance(outcome, Outcome)
        return [row.token for row in rows if isinstance(row, Sampled)], outcome

    def kv_of(self, outcome: Outcome) -> str:
        """Of the KV rows of all layers after an answer: the same digits, the same bits."""
        self.reports.clear()
        self.engine.ask_reports(ReportAsk(outcome.slot, outcome.num_tokens, wants_kv=True))
        kv = {layer: text for report in self.reports for layer, text in report.kv_sha256.items()}
        return hashlib.sha256("".join(kv[layer] for layer in sorted(kv)).encode()).hexdigest()[:12]

    def parts(self, prompt: int) -> dict[str, Any]:
        """Medians, us: each rank's segments a step, hops, and exchanges a layer."""
        _, outcome = self.answer(prompt, 40, wants_times=True)
        self.reports.clear()
        self.engine.ask_reports(ReportAsk(outcome.slot, outcome.num_tokens, wants_kv=False))
        ranks = {report.rank: report for report in self.reports}
        hops = []
        for index, link in enumerate(self.plan.links):
            if link.payload == "hidden":
                sent, got = ranks[link.from_].sent[index], ranks[link.to].received[index]
                hops.append(median([b - a for a, b in zip(sent, got, strict=True)]))
        layers = sum(b - a for a, b in (stage.layers for stage in self.plan.stages))
        return {"segments_us": [median(ranks[r].run_ns) for r in sorted(ranks)], "hops_us": hops,
                "exchange_us_a_layer": [median(ranks[r].exchange_ns) / layers for r in
                                        sorted(ranks) if ranks[r].exchange_ns]}  # fmt: skip


def median(times_ns: Any) -> float:
    return round(statistics.median(times_ns) / 1e3, 1)


def fill(piece: Any, view: torch.Tensor) -> None:
    """The same numbers for the same piece of a tensor, whoever holds it."""
    whole = torch.empty(piece.spec.shape, dtype=view.dtype, device=view.device)
    whole.normal_(generator=torch.Generator(view.device).manual_seed(hash_of(piece.spec.name)))
    if whole.dim() == 1:
        whole.mul_(0.1).add_(1.0)
    else:
        whole.mul_(piece.spec.shape[1] ** -0.5)
    view.copy_(part_of(whole, piece))


def hash_of(name: str) -> int:
    return sum((i + 1) * byte for i, byte in enumerate(name.encode()))


def measure(manifest: ModelManifest, shape: str, mode: str, transport: Any, chunk: int,
            asked: argparse.Namespace) -> dict[str, Any]:  # fmt: skip
    stages = stages_of(shape, len(manifest.layers))
    plan = on_cards(group_plan(manifest, stages, context=8448, prefill_chunk=chunk), transport)
    run = Run(plan, mode)
    found: dict[str, Any] = {"shape": shape, "mode": mode, "transport": transport, "chunk": chunk}
    run.answer(64, 200)  # compiles, and records graphs of every length that follows
    for prompt in asked.prompts:
        run.answer(prompt, 4)
        times, prefills = [], []
        for _ in range(RUNS):
            tokens, outcome = run.answer(prompt, asked.tokens)
            times.append(statistics.median(outcome.decode_ns))
            prefills.append(outcome.prefill_ns)
        found[f"after {prompt}"] = {
            "step_us": median(times), "tok_s": round(1e9 / statistics.median(times), 1),
            "prefill_tok_s": round(prompt * 1e9 / statistics.median(prefills)),
            "tokens": hash_of(str(tokens)), "kv": run.kv_of(outcome),
            **run.parts(prompt)}  # fmt: skip
    return found


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", default="1,2,3,tp2,tp4")
    parser.add_argument("--model", choices=sorted(MODELS), default="llama-8b")
    parser.add_argument("--chunks", type=_numbers, default=[512])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--modes", default="OneCard:p2p")
    parser.add_argument("--prompts", type=_numbers, default=[64])
    asked = parser.parse_args()
    shape = read_architecture(MODELS[asked.model], where="config.json", name=asked.model,
                              tied=None).shape  # fmt: skip
    manifest = ModelManifest.model_validate(shape.model_dump() | {"format": "plancc.model/1"})
    rows = []
    for name, mode, chunk in product(asked.shapes.split(","), asked.modes.split(","), asked.chunks):
        try:
            rows.append(measure(manifest, name, *mode.split(":"), chunk, asked))
        except Exception as error:  # the other shapes are worth knowing
            rows.append({"shape": name, "mode": mode, "error": repr(error)[:300]})
        print(rows[-1], file=sys.stderr, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps({"bench": "plans_gpu", "device": torch.cuda.get_device_name(),
                      "torch": torch.__version__, "model": asked.model, "commit": commit(),
                      "rows": rows}))  # fmt: skip


if __name__ == "__main__":
    main()
