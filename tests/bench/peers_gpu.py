"""transformers on the card, on models of the same shape: the peers of decode_gpu and plans_gpu.

One JSON line: tokens a second of 128 greedy tokens after 64, batch 1, median of three runs, with a
dynamic cache and with a static one and compiled. Random weights. Asserts no time.

    python tests/bench/peers_gpu.py [--models llama-8b,smollm2-135m]
"""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import transformers
from decode_gpu import MODELS, NEW_TOKENS, PROMPT_TOKENS, commit

RUNS = 3


def model_of(name: str) -> Any:
    """Random weights, made on the card."""
    config = transformers.LlamaConfig(**MODELS[name])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


def rate(model: Any, **how: Any) -> float:
    """Tokens a second of the answer, the prompt's time taken off."""
    ids = (torch.arange(1, PROMPT_TOKENS + 1, device="cuda") * 7919 % 40_000)[None]
    asked = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0} | how

    def seconds(count: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(ids, max_new_tokens=count, min_new_tokens=count, **asked)
        torch.cuda.synchronize()
        assert out.shape[1] == PROMPT_TOKENS + count
        return time.perf_counter() - start

    for _ in range(2):
        seconds(NEW_TOKENS)
    first = statistics.median(seconds(1) for _ in range(RUNS))
    whole = statistics.median(seconds(NEW_TOKENS) for _ in range(RUNS))
    return round((NEW_TOKENS - 1) / (whole - first), 1)


def measure(name: str) -> dict[str, Any]:
    model = model_of(name)
    found: dict[str, Any] = {"model": name, "dynamic": rate(model)}
    print(found, file=sys.stderr, flush=True)
    model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
    found["static, compiled"] = rate(model, cache_implementation="static")
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="smollm2-135m,llama-8b")
    rows = []
    for name in parser.parse_args().models.split(","):
        try:
            rows.append(measure(name))
        except Exception as error:  # the other model is worth knowing
            rows.append({"model": name, "error": repr(error)[:300]})
        gc.collect()
        torch.cuda.empty_cache()
        torch.compiler.reset()
    print(json.dumps({"bench": "peers_gpu", "device": torch.cuda.get_device_name(),
                      "torch": torch.__version__, "transformers": transformers.__version__,
                      "commit": commit(), "rows": rows}))  # fmt: skip


if __name__ == "__main__":
    main()
