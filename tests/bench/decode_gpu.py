"""Decode and prefill on one CUDA device, beside what its memory can be read at.

Prints one JSON line: tokens a second at several contexts and batches, GB/s of each weight matrix's
kernel, prefill. Weights are random, made on the device, never zero; a step feeds its own tokens and
the host waits for nothing in between. Asserts no time.

    python tests/bench/decode_gpu.py [--quick]
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

import torch
import triton
import triton.language as tl
from plancc_cpu_ranks import runtime_of
from plancc_gpu_plans import cards_here

from plancc.compiler.frontends.architectures import read_architecture
from plancc.executor.backend.cuda import CudaBackend, CudaRank
from plancc.executor.kv_pages import KvPages
from plancc.executor.step import Drawn, Step
from plancc.ir.instruction import Run
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu.tilings import tiling

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_act": "silu", "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": 128000, "eos_token_id": 128001, "torch_dtype": "bfloat16",
    "rope_theta": 500000.0,
}  # fmt: skip
SMOLLM2: dict[str, Any] = LLAMA_8B | {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 100000.0,
}  # fmt: skip
LLAMA_70B: dict[str, Any] = LLAMA_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64,
}  # fmt: skip
MODELS = {"llama-8b": LLAMA_8B, "llama-70b": LLAMA_70B, "smollm2-135m": SMOLLM2}
CONTEXT, SLOTS, CHUNK = 8448, 32, 4096
NEW_TOKENS, PROMPT_TOKENS, RUNS, ROUNDS = 128, 64, 5, 8


@triton.jit
def _read(source, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK * 8 + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    for i in tl.static_range(8):
        total ^= tl.load(source + at + i * BLOCK)
    if tl.max(total, 0) == 123456789:
        tl.store(out, 1)


def median_us(work: Callable[[], None], runs: int = RUNS) -> float:
    """Of so many runs, after one that is not counted."""
    found = []
    for _ in range(runs + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3)
    return statistics.median(found[1:])


def read_ceiling() -> float:
    """GB/s of a kernel that only reads 8 GiB."""
    data = torch.empty(2**31, dtype=torch.int32, device="cuda").random_()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    us = median_us(lambda: _read[(2**31 // (2048 * 8),)](data, out, BLOCK=2048, num_warps=4))
    return data.numel() * 4 / us / 1e3


def open_rank() -> tuple[ModelShape, CudaRank]:
    """The whole model on the device, with random weights and a cache full of random rows."""
    shape = read_architecture(LLAMA_8B, where="config.json", name="llama-8b", tied=None).shape
    runtime = runtime_of(shape, context=CONTEXT, slots=SLOTS, chunk=CHUNK)
    mlp = shape.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    rank = CudaBackend().open(model=shape, runtime=runtime, layers=(0, len(shape.layers)),
                              blocks=("embed", "head"), tiles=(0, mlp.num_tiles),
                              threads=1, uuid=cards_here()[0])  # fmt: skip
    torch.manual_seed(0)
    for piece in rank.pieces():
        view = rank.parameter(piece)
        if view.dim() == 1:
            view.normal_(1.0, 0.1)
        else:
            view.normal_(0.0, view.shape[1] ** -0.5)
    for layer in rank._cache.layers.values():
        layer.keys.normal_()
        layer.values.normal_()
    return shape, rank


class Bench:
    def __init__(self) -> None:
        self.shape, self.rank = open_rank()
        self.run = Run(segment=0, layers=(0, len(self.shape.layers)), embed=True, head=True)
        self.pages = KvPages(context=CONTEXT, page_tokens=16, pages=SLOTS * CONTEXT // 16,
                             slots=SLOTS)  # fmt: skip
        pages = tuple(page for slot in range(SLOTS) for page in self.pages.grow(slot, CONTEXT))
        ids = (1,) * 16
        self._step(Step("prompt", (0,), (0,), ids, pages))

    def _step(self, step: Step) -> torch.Tensor:
        self.rank.begin(step)
        return self.rank.run(self.run, step, None)

    def decode_us(self, rows: int, context: int) -> float:
        """Microseconds a step, over NEW_TOKENS steps from `context` tokens on."""
        found = []
        for _ in range(RUNS + 1):
            drawn = self._next(rows, context, None)
            self.rank.wait()
            start = time.perf_counter()
            for i in range(1, NEW_TOKENS + 1):
                drawn = self._next(rows, context + i, drawn)
            self.rank.wait()
            found.append((time.perf_counter() - start) * 1e6 / NEW_TOKENS)
        return statistics.median(found[1:])

    def _next(self, rows: int, position: int, fed: Drawn | None) -> Drawn:
        """A step of `rows` slots, from the tokens that the last one drew."""
        ids = () if fed else tuple(range(5, 5 + rows))
        step = Step("decode", tuple(range(rows)), (position,) * rows, ids, fed=fed)
        return self.rank.draw(self._step(step))

    def host_us(self, context: int) -> float:
        """Microseconds a step where the host takes the token from the logits, as planrun does."""
        token, start = 5, 0.0
        for i in range(NEW_TOKENS + 8):
            if i == 8:
                start = time.perf_counter()
            step = Step("decode", (0,), (context + i,), (token,))
            token = int(self.rank.read(self._step(step))[0].numpy().argmax())
        return (time.perf_counter() - start) * 1e6 / NEW_TOKENS

    def prefill_us(self, tokens: int, chunk: int) -> float:
        def once() -> None:
            for first in range(0, tokens, chunk):
                ids = tuple(range(100, 100 + chunk))
                step = Step("prompt", (0,), (first,), ids, wants_logits=False)
                self._step(step)
            self.rank.wait()

        return median_us(once)

    def bytes_read(self) -> int:
        """Weights of a decode step: layers, head, and nothing of the embedding but a row."""
        head = self.shape.block("head")
        assert head is not None
        return sum(layer.weight_bytes for layer in self.shape.layers) + head.weight_bytes

    def kv_bytes(self, rows: int, context: float) -> float:
        return rows * context * sum(layer.mixer.kv_width() or 0 for layer in self.shape.layers) * 2


def graph_us(launch: Callable[[], None]) -> float:
    """Microseconds of what is launched, as a graph."""
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return median_us(graph.replay)


def exactness(bench: Bench, step_us: float) -> dict[str, float]:
    """What the tile tree costs a step of one row: the down projection with it and without."""
    segments, layers = bench.rank._segments, range(*bench.run.layers)

    def plain() -> None:
        for index in layers:
            rows, w = segments.rows.at(index, 1), segments._by_layer[index]["down"]
            how = tiling("down", 2, 1, w.shape[1] // 2, segments._card)
            segments._join(rows, rows.activated, w, None, segments._gain(bench.run, index + 1),
                           how, tile_bounds(w.shape[1], 1, how.pieces), 1)  # fmt: skip

    def exact() -> None:
        for index in layers:
            segments.launch_role("down", bench.run, index, 1)

    found = {"down_us": graph_us(exact), "down_without_tree_us": graph_us(plain)}
    cost = found["down_us"] - found["down_without_tree_us"]
    return {name: round(us, 1) for name, us in found.items()} | {
        "share_of_step": round(cost / step_us, 4)
    }


def role_rates(bench: Bench) -> dict[str, float]:
    """GB/s of each weight matrix's kernel at one row: all layers, one after another, so often that
    it is not seen how a graph begins, nor that the card was idle before."""
    segments, buffers = bench.rank._segments, bench.rank._weights.buffers
    found = {}
    for role, buffer in (("qkv", "qkv"), ("o", "output"), ("gate_up", "gate_up"), ("down", "down"),
                         ("head", "head")):  # fmt: skip

        def launch(role: str = role) -> None:
            layers = range(1) if role == "head" else range(*bench.run.layers)
            for index in [*layers] * ROUNDS:
                segments.launch_role(role, bench.run, index, 1)

        us = graph_us(launch)
        size = sum(t.numel() * 2 for name, t in buffers.items() if name.split(".")[-1] == buffer)
        found[role] = round(ROUNDS * size / us / 1e3, 0)
    return found


def main() -> None:
    quick = "--quick" in sys.argv
    ceiling = read_ceiling()
    bench = Bench()
    result: dict[str, Any] = {
        "bench": "decode_gpu", "model": "Llama-3.1-8B shape, bfloat16, random weights",
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "triton": triton.__version__, "commit": commit(), "read_gb_s": round(ceiling),
        "weights_gb": round(bench.bytes_read() / 1e9, 3), "decode": [], "prefill": [],
    }  # fmt: skip
    result["by_shape_gb_s"] = role_rates(bench)
    for rows, context in ((1, PROMPT_TOKENS), (1, 8192), (8, PROMPT_TOKENS), (32, PROMPT_TOKENS)):
        us = bench.decode_us(rows, context)
        kv = bench.kv_bytes(rows, context + NEW_TOKENS / 2)
        floor = (bench.bytes_read() + kv) / ceiling / 1e3
        result["decode"].append({
            "rows": rows, "context": context, "step_us": round(us, 1),
            "tok_s": round(rows * 1e6 / us, 1), "share_of_read_floor": round(floor / us, 3),
        })  # fmt: skip
        print(result["decode"][-1], file=sys.stderr, flush=True)
    result["exactness"] = exactness(bench, result["decode"][0]["step_us"])
    print(result["exactness"], file=sys.stderr, flush=True)
    host = bench.host_us(PROMPT_TOKENS)
    result["host_loop"] = {"step_us": round(host, 1), "tok_s": round(1e6 / host, 1)}
    print(result["host_loop"], file=sys.stderr, flush=True)
    for tokens, chunk in ((512, 512), (4096, 512), (4096, 4096)):
        if quick:
            break
        us = bench.prefill_us(tokens, chunk)
        result["prefill"].append(
            {"tokens": tokens, "chunk": chunk, "tok_s": round(tokens * 1e6 / us)}
        )
        print(result["prefill"][-1], file=sys.stderr, flush=True)
    result["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    print(json.dumps(result))


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
