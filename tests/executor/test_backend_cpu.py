"""A rank on a CPU device: what it holds, what it refuses."""

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, runtime_of, tiny_model

from plancc.executor.backend.cpu import CpuBackend
from plancc.executor.step import Step
from plancc.ir.buffers import Capacity, workspace_bytes
from plancc.ir.errors import BadInput
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape, Rope
from plancc.ir.sizes import head_extra_bytes, layer_kv_bytes
from plancc.ir.tensors import rank_pieces

SPECS = {
    "float32": TinyLlama(),
    "bfloat16 with biases": TinyLlama(dtype="bfloat16", attention_bias=True),
    "tied": TinyLlama(tied=True, dtype="float16"),
    "window": TinyLlama(sliding_window=40, num_kv_heads=4),
    "wide heads": TinyLlama(head_dim=24),
}


@pytest.mark.parametrize("kv_dtype", ["", "bfloat16"])
@pytest.mark.parametrize("name", SPECS)
def test_what_is_allocated_is_what_the_ledger_counts(name: str, kv_dtype: str) -> None:
    shape, tensors = tiny_model(SPECS[name])
    slots, context, chunk = 3, 200, 48
    ranks = CpuRanks(shape, tensors, cuts=(0, 1, 4), context=context, slots=slots, chunk=chunk,
                     kv_dtype=kv_dtype)  # fmt: skip
    embed, head = shape.block("embed"), shape.block("head")
    assert embed is not None
    assert head is not None
    blocks = (embed.resident_bytes, head.resident_bytes)
    for index, (rank, span) in enumerate(zip(ranks.ranks, ranks.spans, strict=True)):
        layers = shape.layers[slice(*span)]
        assert rank.allocated_bytes() == {
            "weights": sum(layer.weight_bytes for layer in layers),
            "kv": sum(
                layer_kv_bytes(shape, layer, context=context, slots=slots, prefill_chunk=chunk,
                               kv_dtype=ranks.runtime.kv_dtype)
                for layer in layers
            ),
            "blocks": blocks[index],
            "workspace": workspace_bytes(shape, layers, Capacity(slots, chunk, context),
                                         layout="block", has_head=index == 1),
        }  # fmt: skip


def test_a_tied_matrix_is_stored_once_where_both_ends_meet() -> None:
    shape, tensors = tiny_model(TinyLlama(tied=True))
    embed, head = shape.block("embed"), shape.block("head")
    assert embed is not None
    assert head is not None
    held = CpuRanks(shape, tensors, context=32).ranks[0].allocated_bytes()["blocks"]
    assert held == embed.resident_bytes + head_extra_bytes(head, embed)


def test_parameters_are_views_of_fused_buffers_of_the_pieces_shapes() -> None:
    shape, tensors = tiny_model(TinyLlama(dtype="bfloat16", attention_bias=True))
    rank = CpuRanks(shape, tensors, context=32).ranks[0]
    assert rank.pieces() == rank_pieces(shape, (0, 4), blocks=("embed", "head"))
    views = {piece.spec.name: rank.parameter(piece) for piece in rank.pieces()}
    for piece in rank.pieces():
        view = views[piece.spec.name]
        assert view.shape == piece.shape
        assert view.dtype == torch.bfloat16
        assert torch.equal(view, tensors[piece.spec.name])
    q, k, v = (views[f"model.layers.2.self_attn.{name}_proj.weight"] for name in "qkv")
    assert k.data_ptr() == q.data_ptr() + q.numel() * 2
    assert v.data_ptr() == k.data_ptr() + k.numel() * 2
    gate, up = (views[f"model.layers.2.mlp.{name}_proj.weight"] for name in ("gate", "up"))
    assert up.data_ptr() == gate.data_ptr() + gate.numel() * 2


def test_a_step_allocates_nothing() -> None:
    shape, tensors = tiny_model(TinyLlama())
    ranks = CpuRanks(shape, tensors, context=128)
    ranks.prompt(0, range(70))
    step = Step("decode", (0,), (70,), (3,), ())
    first, second = (
        ranks.ranks[0].run(Run(segment=0, layers=(0, 4), embed=True, head=True), step, None)
        for _ in range(2)
    )
    assert first.data_ptr() == second.data_ptr()


def test_logits_are_computed_only_where_wanted() -> None:
    shape, tensors = tiny_model(TinyLlama())
    ranks = CpuRanks(shape, tensors, context=64, slots=2)
    pages = ranks.pages.grow(0, 5) + ranks.pages.grow(1, 5)
    quiet = ranks.run(Step("prompt", (0,), (0,), (1, 2, 3), pages, wants_logits=False))
    assert quiet.shape == (0, 320)
    assert ranks.run(Step("prompt", (1,), (0,), (1, 2, 3))).shape == (1, 320)
    both = Step("decode", (0, 1), (3, 3), (4, 4))
    assert ranks.run(both).shape == (2, 320)
    assert ranks.run(both).dtype == torch.float32
    assert ranks.run(Step("decode", (0, 1), (3, 3), (4, 4), wants_logits=False)).shape == (0, 320)


def test_a_rank_without_head_returns_rows_in_the_models_format() -> None:
    shape, tensors = tiny_model(TinyLlama(dtype="bfloat16"))
    ranks = CpuRanks(shape, tensors, cuts=(0, 2, 4), context=64)
    step = Step("prompt", (0,), (0,), (5, 6), ranks.pages.grow(0, 2))
    rows = ranks.ranks[0].run(Run(segment=0, layers=(0, 2), embed=True), step, None)
    assert rows.shape == (2, 64)
    assert rows.dtype == torch.bfloat16


def test_a_step_without_its_page_is_a_bug_that_shows() -> None:
    shape, tensors = tiny_model(TinyLlama())
    ranks = CpuRanks(shape, tensors, context=64)
    with pytest.raises(AssertionError, match="no page"):
        ranks.run(Step("prompt", (0,), (0,), (5, 6)))


def _changed(shape: ModelShape, part: str, fields: dict[str, object]) -> ModelShape:
    layer = shape.layers[0]
    changed = getattr(layer, part).model_copy(update=fields)
    return shape.model_copy(
        update={"layers": (layer.model_copy(update={part: changed}), *shape.layers[1:])}
    )


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("mlp", {"kind": "geglu"}, "mlp: expected swiglu, found geglu"),
        ("mixer", {"head_dim": 512}, "head_dim 512: expected at most 256"),
        ("mixer", {"num_heads": 5}, "num_heads 5: expected num_kv_heads 2 times"),
        ("mixer", {"rope": "local"}, "found 'local'"),
        ("mixer", {"k_dim": 8, "v_dim": 8}, "k_dim and v_dim"),
    ],
)
def test_what_no_kernel_serves_is_refused_by_layer_and_field(
    part: str, fields: dict[str, object], message: str
) -> None:
    shape, _ = tiny_model(TinyLlama())
    with pytest.raises(BadInput, match=message) as caught:
        _open(_changed(shape, part, fields))
    assert "layer 0" in str(caught.value)


def test_odd_rotations_are_refused() -> None:
    shape, _ = tiny_model(TinyLlama())
    assert shape.geometry is not None
    odd = shape.geometry.model_copy(update={"rope": {"default": Rope(theta=1e4, rotary_dim=7)}})
    with pytest.raises(BadInput, match="even number"):
        _open(shape.model_copy(update={"geometry": odd}))


def _open(shape: ModelShape) -> None:
    CpuBackend().open(model=shape, runtime=runtime_of(shape, context=32), layers=(0, 2),
                      blocks=("embed",), tiles=(0, 16), threads=1)  # fmt: skip
