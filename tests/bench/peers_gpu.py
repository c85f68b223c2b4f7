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


class _AfterFirst(transformers.StoppingCriteria):
    """Notes when the first token of an answer is there; stops nothing."""

    start: float | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        if self.start is None:
            torch.cuda.synchronize()
            self.start = time.perf_counter()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def rate(model: Any, **how: Any) -> float:
    """Tokens a second of an answer, after its first; all answers are of one length, since a length
    is compiled for."""
    ids = (torch.arange(1, PROMPT_TOKENS + 1, device="cuda") * 7919 % 40_000)[None]
    asked = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0,
             "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS} | how  # fmt: skip

    def seconds() -> float:
        clock = _AfterFirst()
        with torch.inference_mode():
            out = model.generate(ids, stopping_criteria=[clock], **asked)
        torch.cuda.synchronize()
        assert out.shape[1] == PROMPT_TOKENS + NEW_TOKENS
        assert clock.start is not None
        return time.perf_counter() - clock.start

    for _ in range(2):
        seconds()
    return round((NEW_TOKENS - 1) / statistics.median(seconds() for _ in range(RUNS)), 1)


def measure(name: str) -> dict[str, Any]:
    """A static cache is what generate compiles decode steps for, by itself."""
    model = model_of(name)
    found: dict[str, Any] = {"model": name, "dynamic": rate(model)}
    print(found, file=sys.stderr, flush=True)
    start = time.perf_counter()
    found["static, compiled"] = rate(model, cache_implementation="static")
    found["compiling_and_all_runs_s"] = round(time.perf_counter() - start, 1)
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
