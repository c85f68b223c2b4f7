"""The CUDA backend on a card: bits that no placement, batch, chunk or graph changes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, tiny_model
from plancc_gpu_ranks import GpuRanks

from plancc.executor.step import Step
from plancc.ir.instruction import Run

pytestmark = pytest.mark.gpu
SPECS = {
    "plain": TinyLlama(hidden_size=256, intermediate_size=704, num_heads=8, num_kv_heads=2),
    "window": TinyLlama(hidden_size=256, intermediate_size=512, num_heads=8, num_kv_heads=4,
                        sliding_window=100),
    "tied": TinyLlama(hidden_size=192, intermediate_size=384, num_heads=3, num_kv_heads=1,
                      tied=True, attention_bias=True),
}  # fmt: skip
TOLERANCE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}
"""Of the largest logit: the two backends round at the same places but sum in other orders."""


def opened(name: str, dtype: str, kind: Any = GpuRanks, **options: Any) -> Any:
    shape, tensors = tiny_model(replace(SPECS[name], dtype=dtype))
    if kind is GpuRanks:
        options["device"] = "cuda"
    return kind(shape, tensors, context=400, chunk=200, **options)


def script(ranks: Any, chunk: int = 200) -> list[torch.Tensor]:
    """Logits of two prompts and of steps with both, one and the other."""
    found = [ranks.prompt(0, [7 * i % 300 for i in range(310)], chunk=chunk),
             ranks.prompt(1, range(5), chunk=chunk)]  # fmt: skip
    for step in ({0: 3, 1: 4}, {1: 9}, {1: 2, 0: 8}):
        found += list(ranks.decode(step).clone())
    return [logits.clone() for logits in found]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", SPECS)
def test_logits_are_near_those_of_the_cpu(name: str, dtype: str) -> None:
    ours, theirs = opened(name, dtype, slots=2), opened(name, dtype, CpuRanks, slots=2)
    for mine, other in zip(script(ours), script(theirs), strict=True):
        assert float((mine - other).abs().max()) < TOLERANCE[dtype] * float(other.abs().max())


@pytest.mark.parametrize("name", SPECS)
def test_stages_chunks_and_graphs_change_no_bit(name: str) -> None:
    one = opened(name, "bfloat16", slots=2)
    expected, digests = script(one), (one.kv_digests(0), one.kv_digests(1))
    for chunk, options in (
        (200, {"graphs": False}),
        (37, {"cuts": (0, 1, 4)}),
        (128, {"cuts": (0, 2, 3, 4), "graphs": False}),
        (200, {"cuts": (0, 3, 4), "head_first": True, "slots": 4}),
    ):
        other = opened(name, "bfloat16", **({"slots": 2} | options))
        for count in (299, 301):  # graphs are made of chunks of other rows
            other.prompt(0, [11 * i % 300 for i in range(count)], chunk=chunk)
            other.prompt(1, range(count - 298), chunk=chunk)
        for _ in range(2):  # the second time replays every graph
            found = script(other, chunk)
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), options
            assert (other.kv_digests(0), other.kv_digests(1)) == digests


def test_a_row_has_the_same_bits_alone_and_in_a_batch() -> None:
    many, alone = (opened("plain", "bfloat16", slots=slots) for slots in (40, 1))
    for slot in range(40):
        many.prompt(slot, range(slot, slot + 3 + 5 * slot))
    for count in (40, 17, 5):
        logits = many.decode({slot: slot + count for slot in range(count)}).clone()
        for slot in (0, count // 2, count - 1):
            alone.prompt(0, range(slot, slot + 3 + 5 * slot))
            for before in (c for c in (40, 17, 5) if c >= count):
                mine = alone.decode({0: slot + before})
            assert torch.equal(mine[0], logits[slot])


def test_greedy_on_the_device_is_greedy_on_the_host() -> None:
    ranks = opened("plain", "bfloat16")
    tokens = ranks.greedy(range(100, 140), 20)
    first = int(ranks.prompt(0, range(100, 140)).argmax())
    rank, found, fed = ranks.ranks[0], [first], None
    run = Run(segment=0, layers=(0, 4), embed=True, head=True)
    pages = ranks.pages.grow(0, 64)
    for position in range(40, 59):
        ids = () if fed else (first,)
        step = Step("decode", (0,), (position,), ids, pages if not fed else (), fed=fed)
        rank.begin(step)
        fed = rank.draw(rank.run(run, step, None))
        found.append(*fed.ids())
    assert found == tokens
