"""Chosen pairs of a model and a machine, and each compiled plan as a page to review.

    python tests/support/plancc_golden_plans.py [NAME ...]      writes tests/golden/plans/ anew

A page tells what a reviewer asks of a plan: where every layer runs, how full and how fast, how
sure, and what lost. Digests and times of other things are not in it.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plancc.compiler.api import compile as compile_plan
from plancc.ir.ask import Ask
from plancc.ir.manifest import read_manifest
from plancc.ir.plan import Alternative, Plan
from plancc.ir.topology import read_topology
from plancc.ir.units import format_bytes, format_ns

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "tests" / "golden" / "plans"


@dataclass(frozen=True)
class Question:
    """Files relative to plans/, without their endings; what is asked besides."""

    model: str
    machine: str
    why: str
    ask: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [Path(file).name.split(".model")[0].split(".topo")[0]
                 for file in (self.model, self.machine)]  # fmt: skip
        return "-on-".join(words)


QUESTIONS = (
    Question("models/qwen3-8b", "topologies/two-3090", "one card holds it: is a group worth two?"),
    Question("seeds/ninfer-27b.model", "seeds/2x3090.topo", "the reported pair, slots x16",
             {"context": 32768}),
    Question("seeds/ninfer-27b.model", "seeds/2x3090-x4.topo", "the same on a slot of x4",
             {"context": 32768}),
    Question("seeds/ninfer-27b.model", "seeds/2xa4000.topo", "the largest context of the pair",
             {"objective": "context", "head": "first"}),
    Question("models/qwen3.6-27b", "topologies/4x3090-x8", "hybrid, behind two switches"),
    Question("models/gemma-3-27b", "topologies/4x3090-two-bridges", "windows, two NVLink pairs",
             {"without": ("vision",)}),
    Question("models/qwen3-30b-a3b", "topologies/4x3090-two-bridges", "experts are never cut"),
    Question("models/mistral-small-24b", "topologies/4x4090", "dense, staged copies"),
    Question("models/llama-2-13b", "topologies/4xv100-32", "float16, unequal NVLinks",
             {"context": 4096}),
    Question("models/mistral-7b", "topologies/laptop-pair", "two laptops on a slow network",
             {"context": 4096}),
    Question("models/gpt-oss-120b", "topologies/cpu-and-4090", "a processor beside a card"),
    Question("models/llama-3.3-70b", "topologies/mixed-8", "unequal cards, unequal links"),
    Question("models/qwen3-32b", "topologies/8xa100-40", "32 streams at once",
             {"objective": "throughput", "slots": 32, "context": 4096}),
    Question("models/llama-3.1-405b", "topologies/8xh200", "eight equal devices",
             {"context": 16384}),
    Question("seeds/tensorsharp-stand-in.model", "seeds/2x2-a40.topo", "across two hosts"),
)  # fmt: skip


def main() -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    wanted = set(sys.argv[1:])
    for question in QUESTIONS:
        if not wanted or question.name in wanted:
            path = PAGES / f"{question.name}.txt"
            path.write_text(page(question), encoding="utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


def page(question: Question) -> str:
    """The whole page, freshly compiled."""
    model = read_manifest(ROOT / "plans" / f"{question.model}.yaml")
    topology = read_topology(ROOT / "plans" / f"{question.machine}.yaml")
    plan = compile_plan(model, topology, Ask(**question.ask))
    asked = "".join(f" --{key} {_said(value)}" for key, value in question.ask.items())
    head = f"{question.model} on {question.machine}{asked}\n{question.why}\n"
    return "\n".join([head, *_answer(plan), *_stages(plan), *_devices(plan), *_lost(plan)]) + "\n"


def _said(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _answer(plan: Plan) -> list[str]:
    proof, decode, prefill = plan.provenance.solver, plan.predicted.decode, plan.predicted.prefill
    lines = [
        f"{proof.objective} {_value(plan, proof.value)}; {proof.status}, "
        f"gap {proof.gap:.2%}; the best of all shapes {_value(plan, proof.best)}",
        f"decode {format_ns(decode.step_ns)} a token ({decode.tokens_per_s:.1f} tok/s) "
        f"at context {plan.runtime.context}",
    ]
    if prefill is not None:
        lines.append(f"prefill {prefill.prompt} tokens in {prefill.chunks} chunks, "
                     f"{format_ns(prefill.total_ns)}")  # fmt: skip
    return [*lines, ""]


def _value(plan: Plan, value: int | None) -> str:
    if value is None:
        return ""
    return f"{value} tokens" if plan.ask.objective == "context" else format_ns(value)


def _stages(plan: Plan) -> list[str]:
    lines = []
    for number, stage in enumerate(plan.stages):
        time = plan.predicted.decode.stages[number]
        ranks = ", ".join(rank.device if stage.mixer == "single" else
                          f"{rank.device} tiles [{rank.mlp_tiles[0]}, {rank.mlp_tiles[1]})"
                          for rank in stage.ranks)  # fmt: skip
        lines.append(f"stage {number}: layers [{stage.layers[0]}, {stage.layers[1]}), "
                     f"{stage.mixer}: {ranks}")  # fmt: skip
        exchange = f", exchange {format_ns(time.exchange_ns)}" if time.exchange_ns else ""
        hop = f", hop {format_ns(time.hop_ns)}" if time.hop_ns else ""
        lines.append(f"  compute {format_ns(time.compute_ns)}{exchange}{hop}"
                     f"{'; ' + ', '.join(stage.blocks) if stage.blocks else ''}")  # fmt: skip
    return [*lines, ""]


def _devices(plan: Plan) -> list[str]:
    tightest = min(plan.devices, key=lambda device: device.ledger.free_after)
    lines = []
    for device in plan.devices:
        mark = " (tightest)" if device is tightest else ""
        lines.append(
            f"{device.name}: {format_bytes(device.ledger.total)} of "
            f"{format_bytes(device.budget_bytes)}, {format_bytes(device.ledger.free_after)} "
            f"free{mark}"
        )
    return [*lines, ""]


def _lost(plan: Plan) -> list[str]:
    return ["what else there was:", *(_alternative(plan, row) for row in plan.alternatives)]


def _alternative(plan: Plan, row: Alternative) -> str:
    parts = [row.verdict]
    if row.value is not None:
        parts.append(_value(plan, row.value))
    if row.short_bytes is not None:
        parts.append(f"short by {format_bytes(row.short_bytes)}")
    parts += [part for part in (row.device, row.note) if part]
    return f"  {row.shape}: {', '.join(parts)}"


if __name__ == "__main__":
    main()
