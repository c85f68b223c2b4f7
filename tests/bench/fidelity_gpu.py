"""SmolLM2's real weights on a card: our logits against transformers' in bfloat16 and float32.

A text is fed token by token (teacher forcing), so every position has logits of our decode kernels;
some prefixes are fed as prompts; then the same with a model in float32. One JSON line: largest and
mean difference and equal first choices, beside what transformers differs from itself between eager
and compiled.

    python tests/bench/fidelity_gpu.py [--tokens 512]      # after `make weights`
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import transformers
from decode_gpu import commit
from plancc_cpu_ranks import folder_model
from plancc_gpu_ranks import GpuRanks
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".demo" / "SmolLM2-135M-Instruct"
WIDE = ROOT / ".demo" / "SmolLM2-135M-Instruct-f32"
PREFIXES = (1, 64, 100, 333)


def ours(ids: list[int], folder: Path = FOLDER) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """(logits of every position in decode [n, vocab_size], those of prompts by their length)."""
    shape, tensors = folder_model(folder)
    ranks = GpuRanks(shape, tensors, context=1024, device="cuda")
    prompts = {n: ranks.prompt(0, ids[:n]) for n in PREFIXES if n <= len(ids)}
    rows = [ranks.prompt(0, ids[:1])]
    rows += [ranks.decode({0: token})[0] for token in ids[1:]]
    return torch.stack(rows), prompts


def theirs(
    ids: list[int], dtype: torch.dtype, *, compiled: bool = False, folder: Path = FOLDER
) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).cuda().eval()
    forward = torch.compile(model.forward) if compiled else model.forward
    with torch.inference_mode():
        return forward(torch.tensor([ids], device="cuda")).logits[0].float().cpu()


def compare(found: torch.Tensor, ref: torch.Tensor) -> dict[str, float]:
    difference = (found - ref).abs()
    largest = float(ref.abs().max())
    return {"max": round(float(difference.max()) / largest, 5),
            "mean": round(float(difference.mean()) / largest, 6),
            "top1": round(float((found.argmax(1) == ref.argmax(1)).float().mean()), 4)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=512)
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    text = (ROOT / "README.md").read_text()
    ids = tokenizer.encode(text).ids[: parser.parse_args().tokens]
    mine, prompts = ours(ids)
    eager, compiled = (theirs(ids, torch.bfloat16, compiled=c) for c in (False, True))
    exact = theirs(ids, torch.float32)
    wide = ours(ids, WIDE)[0], theirs(ids, torch.float32, folder=WIDE)
    pairs: dict[str, Any] = {
        "ours - eager": (mine, eager), "compiled - eager": (compiled, eager),
        "ours - float32": (mine, exact), "eager - float32": (eager, exact),
        "both in float32": wide,
        "our prompts - eager": (torch.stack(list(prompts.values())),
                                torch.stack([eager[n - 1] for n in prompts])),
    }  # fmt: skip
    print(json.dumps({
        "bench": "fidelity_gpu", "model": FOLDER.name, "positions": len(ids),
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "transformers": transformers.__version__, "commit": commit(),
        "of the largest logit": {name: compare(*pair) for name, pair in pairs.items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
