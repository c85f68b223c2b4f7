"""Does a model answer with the same bits however it is spread over this machine's cards?

Prints one JSON line; a line a case goes to stderr. Exit status 1 where anything differs or fails,
and the first difference is named. Weights are random, made on the devices.

    python tests/bench/same_bits_gpu.py --layers 4          every case, of 4 layers
    python tests/bench/same_bits_gpu.py                     few cases, of all layers
    CUDA_VISIBLE_DEVICES=1,0 python tests/bench/same_bits_gpu.py --layers 4 --cases few \
        --against same_bits.json                            another order of cards, the same bits?

Models: llama-8b (bfloat16), and `hybrid`: its layers, every second one with a window of 128 tokens,
as in gpt-oss. One card in graphs, prompts in chunks of the first of --chunks, is what all else is
compared with: by digests of logits, KV and tokens, as `planrun --verify` does it.
"""

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from decode_gpu import LLAMA_8B, commit
from plancc_card_shapes import cards_of, manifest_of_config, shape_of, shape_plan
from plancc_gpu_plans import BACKENDS, cards_here, on_cards
from plancc_random_run import RandomRun
from plancc_same_bits import Case, Row, cases_of, compare, difference_from, first_of

from plancc.ir.manifest import ModelManifest

WINDOWS: dict[str, int | None] = {"llama-8b": None, "hybrid": 128}
SHAPES = ["1", "2", "2u", "2h", "3", "tp2", "tp2u", "tp2o", "tp2uo", "2xtp2", "2xtp2u"]
FEW = ["1", "2", "tp2", "tp2u", "2xtp2"]
MORE = {4: ["4", "tp4", "tp4u", "tp4o", "2xtp4"], 8: ["8", "tp8", "tp8u", "4xtp2"]}
"""Besides, from so many cards on."""


def rows_of(name: str, asked: argparse.Namespace) -> list[Row]:
    manifest = manifest_of_config(LLAMA_8B, name, num_layers=asked.layers, window=WINDOWS[name])
    count = len(cards_here())
    more = [word for least, words in MORE.items() if count >= least for word in words]
    some = (FEW if asked.cases == "few" else SHAPES) + more
    words = asked.shapes or [word for word in some if has_layers(word, manifest)]
    cases = cases_of(words, asked.chunks, num_cards=count, are_few=asked.cases == "few")
    found = []
    for row in compare(cases, lambda case: opened(manifest, case, asked), prompt=asked.prompt,
                       tokens=asked.tokens):  # fmt: skip
        found.append(row)
        what = row.difference or "" if row.difference or len(found) == 1 else "same"
        print(f"{name:9} {row.case:48} {row.logits:8} {row.kv:8} {row.tokens:8} "
              f"{row.seconds:5.1f} s  {what}", file=sys.stderr, flush=True)  # fmt: skip
    return found


def has_layers(word: str, manifest: ModelManifest) -> bool:
    """One at least for every stage of the shape."""
    try:
        shape_of(word, manifest)
    except ValueError:
        return False
    return True


def opened(manifest: ModelManifest, case: Case, asked: argparse.Namespace) -> RandomRun:
    gc.collect()  # what the case before held
    torch.cuda.empty_cache()
    shape = shape_of(case.word, manifest)
    context = asked.prompt + asked.tokens
    plan = shape_plan(manifest, shape, prefill_chunk=case.chunk, context=context)
    cards = cards_of(plan, len(cards_here()), is_swapped=case.is_swapped)
    backends = BACKENDS["EagerCards" if case.is_eager else "Cards"]
    return RandomRun(on_cards(plan, case.transport, cards), backends)


def read_line(path: Path) -> dict[str, Any]:
    """What an earlier run printed last."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").strip().splitlines()[-1])
    return found


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    names = list(WINDOWS)
    parser.add_argument("--models", type=_words, default=names, metavar=",".join(names))
    parser.add_argument("--layers", type=int, help="fewer than the models have")
    parser.add_argument("--cases", choices=("few", "all"), help="all with --layers, else few")
    parser.add_argument("--shapes", type=_words, help="words, as in plancc_card_shapes")
    parser.add_argument("--chunks", type=lambda text: [int(word) for word in _words(text)],
                        default=[512, 1000, 1])  # fmt: skip
    parser.add_argument("--prompt", type=int, default=1250, help="tokens")
    parser.add_argument("--tokens", type=int, default=48, help="after them")
    parser.add_argument("--against", type=Path, metavar="FILE", help="an earlier run's line")
    asked = parser.parse_args()
    asked.cases = asked.cases or ("all" if asked.layers else "few")
    return asked


def _words(text: str) -> list[str]:
    return text.split(",")


def main() -> int:
    asked = _asked()
    old = read_line(asked.against) if asked.against else None
    rows = {name: rows_of(name, asked) for name in asked.models}
    models = {name: [vars(row) for row in found] for name, found in rows.items()}
    question = {"layers": asked.layers, "prompt": asked.prompt, "tokens": asked.tokens,
                "chunk": asked.chunks[0]}  # fmt: skip
    found = [first_of(name, rows[name]) for name in rows]
    if old is not None:
        found.append(difference_from(old, {"question": question, "models": models}))
    first = next((text for text in found if text), None)
    count = sum(len(one) for one in rows.values())
    print(f"different: {first}" if first else f"equal: {count} cases", file=sys.stderr)
    print(json.dumps({"bench": "same_bits_gpu", "device": torch.cuda.get_device_name(),
                      "cards": len(cards_here()), "torch": torch.__version__, "commit": commit(),
                      "question": question, "first_difference": first,
                      "models": models}))  # fmt: skip
    return 1 if first else 0


if __name__ == "__main__":
    sys.exit(main())
