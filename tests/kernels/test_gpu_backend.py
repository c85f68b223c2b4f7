"""The CUDA backend in Triton's interpreter, against the CPU backend, which shares no kernel."""

import os
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, tiny_model
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
    one = GpuRanks(shape, tensors, context=20)
    two = GpuRanks(shape, tensors, context=20, cuts=(0, 1, 2), head_first=True)
    assert torch.equal(one.prompt(0, range(5)), two.prompt(0, range(5), chunk=3))
    assert torch.equal(one.decode({0: 3}), two.decode({0: 3}))
    assert one.kv_digests() == two.kv_digests()


def test_biases_of_an_mlp_are_refused_by_name() -> None:
    shape, tensors = tiny_model(replace(SMALL, mlp_bias=True))
    with pytest.raises(BadInput, match=r"cuda device:\ngeometry\.mlp_bias: expected false \(no "
                                       r"kernel adds biases of an MLP"):  # fmt: skip
        GpuRanks(shape, tensors, context=20)
