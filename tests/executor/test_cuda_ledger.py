"""Every byte that a rank on a card holds is in the ledger, by name; in Triton's interpreter."""

import os
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import tiny_model
from plancc_gpu_ranks import GpuRanks

from plancc.ir.buffers import (
    SAMPLE_PIECES,
    SQUARES_COLUMNS,
    Capacity,
    aligned,
    power_of_two,
    scratch_buffers,
    split_tokens,
    workspace_bytes,
)
from plancc.ir.sizes import head_extra_bytes, layer_kv_bytes
from plancc.kernels.gpu import attention, norm, sample, tilings

SPECS = {
    "float32": TinyLlama(),
    "bfloat16 with biases": TinyLlama(dtype="bfloat16", attention_bias=True),
    "tied": TinyLlama(tied=True, dtype="float16"),
    "window": TinyLlama(sliding_window=40, num_kv_heads=4, dtype="bfloat16"),
    "odd": TinyLlama(hidden_size=36, num_heads=3, num_kv_heads=1, head_dim=12, vocab_size=301,
                     intermediate_size=51, dtype="bfloat16"),
}  # fmt: skip
CAPACITIES = (Capacity(1, 200, 200), Capacity(3, 16, 301), Capacity(32, 16, 100))


def opened(name: str, capacity: Capacity, **options: Any) -> GpuRanks:
    shape, tensors = tiny_model(SPECS[name])
    return GpuRanks(shape, tensors, context=capacity.context, slots=capacity.slots,
                    chunk=capacity.prefill_chunk, **options)  # fmt: skip


def ledger_of(ranks: GpuRanks, index: int, capacity: Capacity) -> dict[str, int]:
    """What a plan counts for a rank."""
    shape, span = ranks.shape, ranks.spans[index]
    layers, has_head = shape.layers[slice(*span)], index == ranks.head
    embed, head = shape.block("embed"), shape.block("head")
    assert embed is not None
    assert head is not None
    blocks = embed.resident_bytes if index == 0 else 0
    blocks += head_extra_bytes(head, embed if index == 0 else None) if has_head else 0
    kv = sum(layer_kv_bytes(shape, layer, context=capacity.context, slots=capacity.slots,
                            prefill_chunk=capacity.prefill_chunk, kv_dtype=shape.dtype)
             for layer in layers)  # fmt: skip
    return {
        "weights": sum(layer.weight_bytes for layer in layers),
        "kv": kv,
        "blocks": blocks,
        "workspace": workspace_bytes(shape, layers, capacity, layout="chunk", has_head=has_head),
    }


@pytest.mark.parametrize("options", [{}, {"cuts": (0, 1, 4)},
                                     {"cuts": (0, 3, 4), "head_first": True}])  # fmt: skip
@pytest.mark.parametrize("capacity", CAPACITIES, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_what_a_rank_holds_is_what_the_ledger_counts(
    name: str, capacity: Capacity, options: dict[str, Any]
) -> None:
    ranks = opened(name, capacity, **options)
    for index, rank in enumerate(ranks.ranks):
        held, counted = rank.allocated_bytes(), ledger_of(ranks, index, capacity)
        workspace, most = held.pop("workspace"), counted.pop("workspace")
        assert held.pop("hop_buffers", 0) == 0  # of no group
        assert held == counted
        layers = ranks.shape.layers[slice(*ranks.spans[index])]
        named = scratch_buffers(ranks.shape, layers, capacity, layout="chunk",
                                has_head=index == ranks.head)  # fmt: skip
        borders = workspace - sum(aligned(size) for size in named.values())
        assert 0 <= borders < 3 * 256 or name == "odd"
        assert workspace <= most <= workspace + 2**20


@pytest.mark.parametrize("name", SPECS)
def test_a_rank_has_no_tensor_that_it_does_not_tell_of(name: str) -> None:
    capacity = CAPACITIES[1]
    rank: Any = opened(name, capacity).ranks[0]
    pinned = {rank._logits.data_ptr(), rank._staging._host.data_ptr(),
              rank._drawer._host.data_ptr(), rank._cache.host_pages.data_ptr()}  # fmt: skip
    found = {storage.data_ptr(): storage.nbytes()
             for storage in (tensor.untyped_storage() for tensor in tensors_in(rank, set()))
             if storage.data_ptr() not in pinned}  # fmt: skip
    assert sum(found.values()) == sum(rank.allocated_bytes().values())


def tensors_in(thing: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that can be reached through fields and containers of the backend."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from tensors_in(value, seen)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from tensors_in(value, seen)
    elif type(thing).__module__.startswith("plancc.executor.backend"):
        yield from tensors_in(vars(thing), seen)


def test_what_sizes_scratch_is_what_kernels_do() -> None:
    assert norm.CHUNK == SQUARES_COLUMNS
    assert sample.PIECES == SAMPLE_PIECES
    for slots in range(1, 65):
        assert tilings.power_of_two(slots) == power_of_two(slots)
    for head_dim in (16, 64, 80, 128, 192, 256):
        for itemsize in (2, 4):
            assert 2 * attention.half_tokens(head_dim, itemsize) == split_tokens(head_dim, itemsize)
