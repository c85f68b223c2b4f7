"""A TP group of CUDA ranks in Triton's interpreter: the bits of one rank, whatever the shares."""

import os
from functools import cache
from typing import Any, Literal

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
from plancc.ir.sizes import LINK_SLOTS, hidden_row_bytes
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

# Small enough for the interpreter: three tiles of one column.
SPEC = TinyLlama(num_layers=2, hidden_size=32, intermediate_size=3, vocab_size=40, num_heads=1,
                 num_kv_heads=1, head_dim=16, dtype="float16")  # fmt: skip
SIZES: dict[str, Any] = {"context": 16, "slots": 3, "chunk": 5}
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


@pytest.mark.parametrize(("mixer", "borders"), [("replicated", (1, 2)), ("owned", (2,))])
def test_logits_kv_and_rows_of_every_rank_are_those_of_one(
    mixer: Literal["replicated", "owned"], borders: tuple[int, ...]
) -> None:
    group = GpuGroup(*tiny_model(SPEC), borders, mixer=mixer, **SIZES)
    found, (expected, digests) = answers(group), alone()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert group.kv_digests(2) == digests
    assert all(torch.equal(group.hidden[0], rows) for rows in group.hidden)


def test_rows_that_only_fill_a_step_up_need_no_room() -> None:
    sizes = {"context": 16, "slots": 3, "chunk": 2}  # three rows at most, filled up to four
    group, one = (kind(*tiny_model(SPEC), *borders, **sizes)
                  for kind, borders in ((GpuGroup, ((1,),)), (GpuRanks, ())))  # fmt: skip
    assert torch.equal(group.decode({1: 7, 0: 5, 2: 6}), one.decode({1: 7, 0: 5, 2: 6}))


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
def test_a_rank_holds_what_the_plan_counts_but_for_what_it_receives(
    mixer: Literal["replicated", "owned"],
) -> None:
    shape, tensors = tiny_model(SPEC)
    group, rows = GpuGroup(shape, tensors, (1, 2), mixer=mixer, **SIZES), SIZES["chunk"]
    roots = Group(mixer, SHARES, 0).roots
    for number, rank in enumerate(group.ranks):
        adds = mixer == "replicated" or number == 0
        received = sum(count for other, count in enumerate(roots) if adds and other != number)
        planned = exchange_buffer_bytes(shape, rows, SHARES, mixer, number)
        planned -= LINK_SLOTS * rows * partial_row_bytes(shape, received)
        if mixer == "owned":  # counted as slots of the link; the owner has one place for its own
            planned -= (2 if number else 1) * rows * hidden_row_bytes(shape)
        assert rank.allocated_bytes()["hop_buffers"] == planned


def test_what_no_kernel_serves_is_refused_by_name() -> None:
    shape, _ = tiny_model(SPEC)
    fields: dict[str, Any] = {"model": shape, "runtime": runtime_of(shape, context=16),
                              "layers": (0, 2), "blocks": (), "threads": 1}  # fmt: skip
    backend = CudaBackend("cpu")
    short = runtime_of(shape, context=16, slots=3, chunk=4)
    with pytest.raises(BadInput, match=r"prefill_chunk 4: .* expects at least 5 with 3 slots"):
        backend.open(**fields | {"runtime": short}, tiles=(0, 1),
                     group=Group("owned", ((0, 1), (1, 3)), 0))  # fmt: skip
    with pytest.raises(BadInput, match=r"tiles \(0, 2\) of 2: expected some of 3"):
        backend.open(**fields, tiles=(0, 2))
    many = Group("replicated", tuple((i, i + 1) for i in range(9)), 0)
    with pytest.raises(BadInput, match="a TP group of 9 ranks: expected at most 8"):
        backend.open(**fields, tiles=(0, 1), group=many)
