"""A TP group of CUDA ranks in Triton's interpreter: the bits of one rank, whatever the shares."""

import os
from functools import cache
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, runtime_of, tiny_model
from plancc_gpu_groups import GpuGroup
from plancc_gpu_ranks import GpuRanks

from plancc.executor.backend.cuda import CudaBackend
from plancc.executor.group import Group
from plancc.ir.errors import BadInput
from plancc.ir.groups import exchange_buffer_bytes, partial_row_bytes
from plancc.ir.sizes import LINK_SLOTS
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

# Small enough for the interpreter: three tiles of one column.
SPEC = TinyLlama(num_layers=2, hidden_size=32, intermediate_size=3, vocab_size=40, num_heads=1,
                 num_kv_heads=1, head_dim=16, dtype="float16")  # fmt: skip
SIZES: dict[str, Any] = {"context": 16, "slots": 3, "chunk": 2}
"""A step has room for three rows: decode is filled up to four."""
SHARES = ((0, 1), (1, 2), (2, 3))


def answers(ranks: CpuRanks) -> list[torch.Tensor]:
    """Logits of a prompt in two chunks, and of steps of three slots and of one."""
    found = [ranks.prompt(2, range(3, 6), chunk=2)]
    found += [ranks.decode({2: 9, 0: 5, 1: 6}), ranks.decode({2: 7})]
    return [logits.clone() for logits in found]


@cache
def alone() -> tuple[list[torch.Tensor], list[str]]:
    ranks = GpuRanks(*tiny_model(SPEC), **SIZES)
    return answers(ranks), ranks.kv_digests(2)


@pytest.mark.parametrize("borders", [(2,), (1, 2)])
def test_logits_kv_and_rows_of_every_rank_are_those_of_one(borders: tuple[int, ...]) -> None:
    group = GpuGroup(*tiny_model(SPEC), borders, **SIZES)
    found, (expected, digests) = answers(group), alone()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert group.kv_digests(2) == digests
    assert all(torch.equal(group.hidden[0], rows) for rows in group.hidden)


def test_a_rank_holds_what_the_plan_counts_but_for_what_it_receives() -> None:
    shape, tensors = tiny_model(SPEC)
    group = GpuGroup(shape, tensors, (1, 2), **SIZES)
    roots = Group("replicated", SHARES, 0).roots
    for number, rank in enumerate(group.ranks):
        received = sum(count for other, count in enumerate(roots) if other != number)
        planned = exchange_buffer_bytes(shape, 3, SHARES, "replicated", number)
        planned -= LINK_SLOTS * 3 * partial_row_bytes(shape, received)
        assert rank.allocated_bytes()["hop_buffers"] == planned


def test_what_no_kernel_serves_is_refused_by_name() -> None:
    shape, _ = tiny_model(SPEC)
    fields: dict[str, Any] = {"model": shape, "runtime": runtime_of(shape, context=16),
                              "layers": (0, 2), "blocks": (), "threads": 1}  # fmt: skip
    backend = CudaBackend("cpu")
    with pytest.raises(BadInput, match="expected replicated mixers"):
        backend.open(**fields, tiles=(0, 1), group=Group("owned", ((0, 1), (1, 3)), 0))
    with pytest.raises(BadInput, match=r"tiles \(0, 2\) of 2: expected some of 3"):
        backend.open(**fields, tiles=(0, 2))
    many = Group("replicated", tuple((i, i + 1) for i in range(9)), 0)
    with pytest.raises(BadInput, match="a TP group of 9 ranks: expected at most 8"):
        backend.open(**fields, tiles=(0, 1), group=many)
