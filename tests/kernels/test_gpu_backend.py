"""The CUDA backend in Triton's interpreter, against the CPU backend, which shares no kernel."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, tiny_model
from plancc_frozen import frozen_graphs
from plancc_gpu_ranks import GpuRanks

from plancc.ir.errors import BadInput
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

# Small enough for the interpreter: three tiles of an MLP, one block of everything else.
SMALL = TinyLlama(num_layers=1, hidden_size=32, intermediate_size=3, vocab_size=40, num_heads=2,
                  num_kv_heads=1)  # fmt: skip
SPECS = {
    "tied, biases, wide heads": replace(SMALL, tied=True, attention_bias=True, head_dim=24),
    "window": replace(SMALL, sliding_window=4, num_kv_heads=2),
}


@pytest.mark.parametrize("name", SPECS)
def test_logits_are_those_of_the_cpu(name: str) -> None:
    shape, tensors = tiny_model(SPECS[name])
    ours = GpuRanks(shape, tensors, context=20, slots=2, chunk=4)
    theirs = CpuRanks(shape, tensors, context=20, slots=2, chunk=4)
    for steps in (
        lambda ranks: ranks.prompt(1, range(3, 5), chunk=4),
        lambda ranks: ranks.prompt(0, range(6), chunk=4),
        lambda ranks: ranks.decode({0: 5, 1: 7}),
        lambda ranks: ranks.decode({1: 8}),
    ):
        mine, other = steps(ours), steps(theirs)
        assert float((mine - other).abs().max()) < 2e-5 * float(other.abs().max())


def test_two_stages_and_other_chunks_give_the_same_bits() -> None:
    shape, tensors = tiny_model(replace(SMALL, num_layers=2, dtype="float16"))
    one = GpuRanks(shape, tensors, context=20, chunk=5)
    two = GpuRanks(shape, tensors, context=20, chunk=5, cuts=(0, 1, 2), head_first=True)
    assert torch.equal(one.prompt(0, range(5)), two.prompt(0, range(5), chunk=3))
    assert torch.equal(one.decode({0: 3}), two.decode({0: 3}))
    assert one.kv_digests() == two.kv_digests()


ONE_STAGE = (SMALL, (0, 1), 40, (5, 33, 31, 2, 38))
TWO_STAGES = (replace(SMALL, num_layers=2, sliding_window=9, dtype="float16"), (0, 1, 2), 8,
              (5, 8, 3, 1, 7))  # fmt: skip


@contextmanager
def launched_kernel_by_kernel() -> Iterator[None]:
    """Chunks have no rows but their own."""
    filled = "plancc.executor.backend.cuda_segment.filled_rows"
    with patch(filled, lambda num_rows, itemsize: num_rows):
        yield


def chunks_of(lengths: tuple[int, ...], ranks: GpuRanks) -> list[torch.Tensor]:
    """Logits of chunks of two slots by turns, of another tenant's, and of a step of both."""
    found = [ranks.extend(number % 2, range(number, number + length))
             for number, length in enumerate(lengths)]  # fmt: skip
    found += [ranks.prompt(1, [4]), *ranks.decode({1: 7, 0: 2})]
    return [logits.clone() for logits in found]


def kv_of(ranks: GpuRanks) -> list[torch.Tensor]:
    """All of it, what belongs to no token too."""
    return [plane for rank in ranks.ranks for layer in rank._cache.layers.values()
            for plane in (layer.keys, layer.values)]  # fmt: skip


@pytest.mark.parametrize(("case", "most"), [(ONE_STAGE, 3), (TWO_STAGES, 5)])
def test_graphs_of_chunks_give_the_bits_of_their_rows_alone(
    case: tuple[TinyLlama, tuple[int, ...], int, tuple[int, ...]], most: int
) -> None:
    """Of six chunks all but the first to fill so many blocks are frozen graphs. What is in rows
    that only fill up is no number, in every buffer, and KV is as it was where no token is.

    most: replays of the first rank's graph that serves most chunks.
    """
    spec, cuts, chunk, lengths = case
    with frozen_graphs() as graphs:
        plain, ranks = (GpuRanks(*tiny_model(spec), context=80, slots=2, chunk=chunk, cuts=cuts,
                                 graphs=has_graphs) for has_graphs in (False, True))  # fmt: skip
    with launched_kernel_by_kernel():
        expected = chunks_of(lengths, plain)
    for rank in ranks.ranks:
        for buffer in ("incoming", "hidden", "gained", "qkv", "attended", "activated", "angles"):
            rank._scratch[buffer].fill_(float("nan"))
    found = chunks_of(lengths, ranks)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kv_of(ranks), kv_of(plain), strict=True))
    assert max(graph.num_replays for graph in graphs) == most


def test_biases_of_an_mlp_are_refused_by_name() -> None:
    shape, tensors = tiny_model(replace(SMALL, mlp_bias=True))
    with pytest.raises(BadInput, match=r"cuda device:\ngeometry\.mlp_bias: expected false \(no "
                                       r"kernel adds biases of an MLP"):  # fmt: skip
        GpuRanks(shape, tensors, context=20)
