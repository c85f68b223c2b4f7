"""One model in several shapes, on this machine's cards: what stages, groups, hops and exchanges
cost, beside what the compiler predicts of the same shape.

Prints one JSON line. Weights are random, made on the device, and the same in every shape, so the
tokens must be. stderr has each shape as it ends, then a table: shape, transport, figure, predicted,
measured, how far off; what no shape of its kind can beat; which shape was the fastest. Asserts no
time.

    python tests/bench/plans_gpu.py [--shapes 1,2,3,tp2,2xtp2] [--modes Cards:p2p,Cards:staged]
                                    [--topology topo.yaml,staged.yaml]

Shapes are words of tests/support/plancc_card_shapes.py; `pick` and `pick-prefill` are what the
compiler chooses for the topology. Mode Cards deals the ranks over all cards, OneCard has all on the
first. A topology predicts where its links are of the mode's transport.
"""

import argparse
import gc
import json
import statistics
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from decode_gpu import MODELS, commit
from plancc_card_shapes import (
    Shape,
    cards_of,
    manifest_of_config,
    seated_shape,
    shape_of,
    shape_plan,
)
from plancc_gpu_plans import BACKENDS, cards_here, on_cards
from plancc_plan_figures import (
    PREFILL,
    STEP,
    Figure,
    bounds,
    figures,
    predicted_us,
    table,
    topology_for,
    verdicts,
)
from plancc_random_run import RandomRun, digest_of, median_us

from plancc.compiler.api import compile_passes
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest
from plancc.ir.topology import Topology, read_topology

_WARM_UP = 4  # chunks are made into graphs, one for either slot of a link
PICKS: dict[str, Any] = {"pick": "latency", "pick-prefill": "prefill"}


class Bench:
    """What was asked, and what is known of the machine."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        layers = asked.layers
        self.manifest: ModelManifest = manifest_of_config(MODELS[asked.model], asked.model,
                                                          num_layers=layers)  # fmt: skip
        self.topologies = [read_topology(path) for path in asked.topology]
        words = [word for word in asked.shapes if word not in PICKS]
        self.shapes = {word: shape_of(word, self.manifest) for word in words}
        self.picks: dict[tuple[str, str], str] = {}
        self.rows: list[Figure] = []

    def topology(self, mode: str, transport: Any) -> Topology | None:
        return topology_for(transport, _num_cards(mode), self.topologies)

    def shape(self, word: str, mode: str, transport: Any) -> Shape | None:
        """None for a pick that is one of the other shapes, which is measured anyhow."""
        if word not in PICKS:
            return self.shapes[word]
        topology = self.topology(mode, transport)
        assert topology is not None, f"{word} needs a --topology of {transport} links"
        prompt = max(self.asked.prompts)
        ask = Ask(context=min(prompt + self.asked.tokens, self.asked.context), prompt=prompt,
                  prefill_chunk=self.asked.chunks[0], objective=PICKS[word])  # fmt: skip
        placement = compile_passes(self.manifest, topology, ask, stop_after="place").placement
        assert placement is not None
        names = [device.name for device in topology.devices]
        found = seated_shape(f"{word}-{transport}", placement.stages, names)
        like = [other for other in self.shapes.values() if other.is_like(found)]
        self.picks[transport, PICKS[word]] = (like or [found])[0].word
        print(f"{found.word}: {found.stages}, as shape {(like or [found])[0].word}",
              file=sys.stderr)  # fmt: skip
        return None if like else self.shapes.setdefault(found.word, found)

    def measure(self, shape: Shape, mode: str, transport: Any, chunk: int) -> dict[str, Any]:
        asked = self.asked
        plan = shape_plan(self.manifest, shape, context=asked.context, prefill_chunk=chunk)
        cards = cards_of(plan, _num_cards(mode))
        run = RandomRun(on_cards(plan, transport, cards), BACKENDS[mode])
        topology = self.topology(mode, transport)
        run.answer(64, 200)  # compiles, and records graphs of every length that follows
        found = {"shape": shape.word, "mode": mode, "transport": transport, "chunk": chunk}
        for prompt in asked.prompts:
            measured = _answers(run, prompt, asked)
            here = measured.pop("figures")
            predicted = {} if topology is None else predicted_us(
                plan, topology, cards, prompt=prompt, context=prompt + asked.tokens // 2
            )  # fmt: skip
            self.rows += figures(shape.word, transport, chunk, prompt, here, predicted)
            found[f"after {prompt}"] = measured | {"predicted_us": predicted}
        return found


def _answers(run: RandomRun, prompt: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Medians of several answers, and parts of a step."""
    for _ in range(_WARM_UP):
        run.answer(prompt, 4)
    times, prefills = [], []
    for _ in range(asked.runs):
        sampled, outcome = run.answer(prompt, asked.tokens)
        times.append(statistics.median(outcome.decode_ns))
        prefills.append(outcome.prefill_ns)
    kv, parts = run.kv_of(outcome), run.parts(prompt)
    step, prefill = median_us(times), median_us(prefills)
    hops = {f"hop{stage}": us for stage, us in sorted(parts["hops_us"].items())}
    exchanges = {f"exchange{i}": us for i, us in sorted(parts["exchange_us_a_layer"].items())}
    return {
        "step_us": step, "tok_s": round(1e6 / step, 1),
        "prefill_tok_s": round(prompt * 1e6 / prefill),
        "tokens": digest_of([row.token for row in sampled]),
        "kv": digest_of([kv[layer] for layer in sorted(kv)]), **parts,
        "figures": {STEP: step, PREFILL: prefill, **hops, **exchanges},
    }  # fmt: skip


def _num_cards(mode: str) -> int:
    return len(cards_here()) if mode.endswith("Cards") else 1


def _all(bench: Bench) -> Iterator[dict[str, Any]]:
    asked = bench.asked
    modes = [mode.split(":") for mode in asked.modes.split(",")]
    for word, (mode, transport), chunk in product(asked.shapes, modes, asked.chunks):
        try:
            shape = bench.shape(word, mode, transport)
            if shape is not None:
                yield bench.measure(shape, mode, transport, chunk)
        except Exception as error:  # the other shapes are worth knowing
            yield {"shape": word, "mode": mode, "error": repr(error)[:300]}
        gc.collect()
        torch.cuda.empty_cache()


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=lambda text: text.split(","), default="1,2,3,tp2,tp4")
    parser.add_argument("--model", choices=sorted(MODELS), default="llama-8b")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--context", type=int, default=8448)
    parser.add_argument("--chunks", type=_numbers, default=[512])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--modes", default="OneCard:p2p")
    parser.add_argument("--prompts", type=_numbers, default=[64])
    parser.add_argument("--topology", type=lambda text: [Path(name) for name in text.split(",")],
                        default=[], help="files of planprobe, with commas")  # fmt: skip
    return parser.parse_args()


def main() -> None:
    asked = _asked()
    bench, found = Bench(asked), list[dict[str, Any]]()
    for row in _all(bench):
        print(row, file=sys.stderr, flush=True)
        found.append(row)
    shapes = list(bench.shapes.values())
    beaten = bounds(shapes, bench.manifest, bench.rows)
    fastest = verdicts(bench.picks, bench.rows)
    print(table(bench.rows), *beaten, *fastest, sep="\n", file=sys.stderr, flush=True)
    print(json.dumps({
        "bench": "plans_gpu", "device": torch.cuda.get_device_name(), "cards": len(cards_here()),
        "torch": torch.__version__, "model": asked.model, "context": asked.context,
        "commit": commit(), "rows": found,
        "table": [vars(row) | {"off_percent": row.off_percent} for row in bench.rows],
        "bounds": beaten, "fastest": fastest,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
