"""Compiles what a rank launches, for a card that is not here, and says what it takes of it.

    python -P tests/support/plancc_card_launches.py sm_86 smollm2-135m bfloat16 decode:16 prompt:64

A JSON line for each launch. bfloat16:float32 is a bfloat16 model with a float32 cache: of that only
what meets the cache. The rank lies in the host's memory; launches are caught where Triton
would run them, and compiled for the card instead, by the compiler that Triton has along. Triton
must not have been told to interpret.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from plancc_checkpoints import TinyLlama, config_of
from plancc_cpu_ranks import runtime_of
from plancc_example_models import models
from triton.backends.compiler import GPUTarget

from plancc.compiler.frontends.architectures import read_architecture
from plancc.executor.backend.cuda import CudaBackend, CudaRank
from plancc.executor.group import Group
from plancc.executor.kv_pages import KvPages
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import PAGE_TOKENS
from plancc.kernels.gpu import card
from plancc.kernels.gpu.card import KIB, Card

CARDS = {
    "sm_80": Card((8, 0), 163 * KIB, 108),  # A100
    "sm_86": Card((8, 6), 99 * KIB, 82),  # 3090
    "sm_89": Card((8, 9), 99 * KIB, 128),  # 4090
    "sm_90": Card((9, 0), 227 * KIB, 132),  # H200
    "sm_100": Card((10, 0), 227 * KIB, 148),  # B200
    "sm_120": Card((12, 0), 99 * KIB, 170),  # 5090
}
WIDE = TinyLlama(hidden_size=8192, intermediate_size=28672, vocab_size=4096, num_heads=64,
                 num_kv_heads=1, head_dim=256, num_layers=1)  # fmt: skip
EXTREMES = {"wide": WIDE, "usual-wide": replace(WIDE, head_dim=128)}
"""Heads as wide as kernels take, or as they usually are, and as many queries a K head."""
CONTEXT, SLOTS, CHUNK = 8192, 64, 4096
SHORT, LONG = 5, 5000  # positions of decode rows: within a split, and in several
CACHE_KERNELS = {"_append", "_attention", "merge"}
_BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]


class _Nothing:
    """A compiled kernel that runs nowhere."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *_: None


def main() -> None:
    name, model, formats, *steps = sys.argv[1:]
    dtype, _, kv_dtype = formats.partition(":")
    shape = shape_of(model, dtype)
    with _caught(CARDS[name]) as launches:
        _drive(shape, steps, None, kv_dtype)
        if not kv_dtype:
            _drive(shape, steps, Group("replicated", _shares(shape), 0), kv_dtype)
    if kv_dtype:
        launches = [launch for launch in launches if launch[0].__name__ in CACHE_KERNELS]
    major, minor = CARDS[name].capability
    target = GPUTarget("cuda", 10 * major + minor, 32)
    triton.runtime.driver.set_active(SimpleNamespace(
        get_current_target=lambda: target, get_current_device=lambda: 0,
        get_current_stream=lambda _: 0))  # fmt: skip
    for launch in launches:
        print(json.dumps(_compiled(*launch)), flush=True)


def shape_of(model: str, dtype: str) -> ModelShape:
    """One layer of a model."""
    if model in EXTREMES:
        config = config_of(EXTREMES[model])
        shape = read_architecture(config, where="", name=model, tied=None).shape
    else:
        shape = models()[model][1]
    return shape.model_copy(update={"layers": shape.layers[:1], "dtype": dtype})


def _shares(shape: ModelShape) -> tuple[tuple[int, int], ...]:
    """Of two ranks; the first has several roots."""
    mlp = shape.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    cut = mlp.num_tiles // 3
    return (0, cut), (cut, mlp.num_tiles)


@contextmanager
def _caught(stands_in: Card) -> Iterator[list[Launch]]:
    """Launches, each kind once; the host's memory passes for the card's."""
    launches: list[Launch] = []

    def catch(kernel: Any, *args: Any, **kwargs: Any) -> _Nothing:
        launches.append((kernel, args, kwargs))
        return _Nothing()

    with (
        patch.object(triton.JITFunction, "run", catch),
        patch.object(card, "HOST", stands_in),
        patch("plancc.kernels.gpu.launch.card_at", lambda _: stands_in),
        patch.object(torch.cuda, "current_device", lambda: 0),
        patch.object(torch, "zeros", torch.empty),  # gigabytes that nobody reads
    ):
        yield launches


def _drive(
    shape: ModelShape, steps: Sequence[str], group: Group | None, kv_dtype: str = ""
) -> None:
    """Run steps, such as decode:16, on a rank of all of the model."""
    runtime = runtime_of(shape, context=CONTEXT, slots=SLOTS, chunk=CHUNK, kv_dtype=kv_dtype)
    mlp = shape.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    tiles = group.shares[group.number] if group else (0, mlp.num_tiles)
    rank = CudaBackend("cpu").open(model=shape, runtime=runtime, layers=(0, 1), tiles=tiles,
                                   blocks=("embed", "head"), threads=1, group=group)  # fmt: skip
    pages = KvPages(context=CONTEXT, page_tokens=PAGE_TOKENS, pages=runtime.pages, slots=SLOTS)
    for phase, count in (step.split(":") for step in steps):
        rows = int(count)
        if phase == "prompt":
            _run(rank, Step("prompt", (0,), (0,), (1,) * rows, pages.grow(0, rows)), group)
            continue
        for position in (SHORT, LONG):
            new = tuple(page for slot in range(rows) for page in pages.grow(slot, position + 1))
            _run(rank, Step("decode", tuple(range(rows)), (position,) * rows, (1,) * rows, new),
                 group)  # fmt: skip


def _run(rank: CudaRank, step: Step, group: Group | None) -> None:
    rank.begin(step)
    if group is None:
        logits = rank.run(Run(segment=0, layers=(0, 1), embed=True, head=True), step, None)
    else:
        mine = rank.run(Run(segment=0, layers=(0, 1), embed=True), step, None)
        others = [torch.zeros(len(mine), roots, mine.shape[2]) for roots in group.roots[1:]]
        rank.take(0, [mine, *others])
        logits = rank.run(Run(segment=1, layers=(1, 1), head=True), step, None)
    if step.phase == "decode":
        rank.draw(logits)


def _compiled(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a launch takes: shared memory, registers of a thread, bytes of them that are spilled."""
    made = kernel.run(*args, **kwargs | {"warmup": True})
    how = {name: value for name, value in kwargs.items() if isinstance(value, int)}
    return {
        "kernel": kernel.__name__,
        "shared_bytes": made.metadata.shared,
        **_registers(made.asm["cubin"]),
        "waits": "griddepcontrol" in made.asm["ptx"],
        "copies": "cp.async.bulk" in made.asm["ptx"],
        "how": how,
    }


def _registers(cubin: bytes) -> dict[str, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([_BINARIES / "cuobjdump", "-res-usage", file.name], text=True,
                              capture_output=True, check=True).stdout  # fmt: skip
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found, text
    return {"registers": int(found[1]), "spilled_bytes": int(found[2])}


if __name__ == "__main__":
    main()
