"""A rank's tensors and slices follow from layers, tiles and blocks alone, to the byte."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_builders import build_layer, build_model
from plancc_checkpoints import TinyLlama, config_of, tensor_shapes

from plancc.compiler.frontends.architectures import read_architecture
from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import layer_weight_bytes
from plancc.ir.tensors import TensorPiece, block_tensors, rank_pieces


def shape_of(spec: TinyLlama) -> ModelShape:
    return read_architecture(config_of(spec), where="config.json", name="toy").shape


def num_bytes(pieces: tuple[TensorPiece, ...]) -> int:
    return sum(prod(piece.shape) for piece in pieces) * 4


def mlp_tiles(model: ModelShape) -> int:
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    return mlp.num_tiles


@pytest.mark.parametrize("spec", [
    TinyLlama(),
    TinyLlama(tied=True),
    TinyLlama(attention_bias=True, head_dim=24, num_kv_heads=1),
    TinyLlama(num_layers=1, intermediate_size=33),
])  # fmt: skip
def test_one_device_holds_exactly_the_checkpoints_tensors(spec: TinyLlama) -> None:
    model = shape_of(spec)
    pieces = rank_pieces(model, (0, spec.num_layers), blocks=("embed", "head"))
    assert {piece.spec.name: piece.shape for piece in pieces} == tensor_shapes(spec)
    assert len(pieces) == len(tensor_shapes(spec))


@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4), (0, 2, 3, 4), (0, 1, 2, 3, 4)])
def test_stages_share_out_the_layers_without_gap_or_overlap(cuts: tuple[int, ...]) -> None:
    spec = TinyLlama()
    model = shape_of(spec)
    names = []
    for stage, layers in enumerate(pairwise(cuts)):
        blocks = ("embed",) * (stage == 0) + ("head",) * (layers[1] == 4)
        names += [piece.spec.name for piece in rank_pieces(model, layers, blocks=blocks)]
    assert sorted(names) == sorted(tensor_shapes(spec))


def test_a_tied_head_elsewhere_lists_the_embedding_as_its_own() -> None:
    model = shape_of(TinyLlama(tied=True))
    last = rank_pieces(model, (2, 4), blocks=("head",))
    assert [piece.spec.name for piece in last[:2]] == ["model.norm.weight",
                                                       "model.embed_tokens.weight"]  # fmt: skip
    both = rank_pieces(model, (0, 4), blocks=("embed", "head"))
    assert [piece.spec.name for piece in both].count("model.embed_tokens.weight") == 1


@settings(max_examples=60, deadline=None)
@given(inner=st.integers(1, 200), data=st.data())
def test_tile_shares_cover_each_mlp_once_and_weigh_what_the_ledger_says(
    inner: int, data: st.DataObject
) -> None:
    model = shape_of(TinyLlama(num_layers=1, intermediate_size=inner))
    tiles = mlp_tiles(model)
    inside = data.draw(st.sets(st.integers(1, max(1, tiles - 1)), max_size=3))
    cuts = sorted({0, tiles} | {cut for cut in inside if cut < tiles})
    covered: dict[str, list[int]] = {}
    for share in pairwise(cuts):
        pieces = rank_pieces(model, (0, 1), share=share)
        assert num_bytes(pieces) == layer_weight_bytes(model.layers[0], share)
        for piece in pieces:
            if piece.span is not None:
                covered.setdefault(piece.spec.name, []).extend(range(*piece.span))
    assert {name.split(".")[4] for name in covered} == {"gate_proj", "up_proj", "down_proj"}
    assert all(columns == list(range(inner)) for columns in covered.values())


def test_gate_and_up_are_cut_by_rows_and_down_by_columns() -> None:
    model = shape_of(TinyLlama(num_layers=1))
    shapes = {piece.spec.name.split(".")[-2]: piece.shape
              for piece in rank_pieces(model, (0, 1), share=(0, 4))}  # fmt: skip
    assert (shapes["gate_proj"], shapes["up_proj"]) == ((24, 64), (24, 64))
    assert shapes["down_proj"] == (64, 24)
    assert shapes["q_proj"] == (64, 64)


def test_a_rank_without_mixers_holds_its_tiles_and_nothing_else() -> None:
    model = shape_of(TinyLlama(num_layers=2))
    layer = model.layers[0]
    assert isinstance(layer.mlp, DenseMlp)
    pieces = rank_pieces(model, (0, 2), share=(4, 9), has_mixer=False)
    names = {piece.spec.name.split(".", 3)[-1] for piece in pieces}
    assert names == {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}
    assert num_bytes(pieces) == 2 * layer.mlp.share_bytes(4, 9)


def test_what_cannot_be_run_is_refused_with_what_is_missing() -> None:
    bytes_only = build_model([build_layer(1000, kv=64)])
    with pytest.raises(BadInput, match="family 'bytes' can be compiled but not run"):
        rank_pieces(bytes_only, (0, 1))
    no_heads = build_model([build_layer(1000, kv=64)], family="llama")
    with pytest.raises(BadInput, match="needs num_heads, num_kv_heads and head_dim"):
        rank_pieces(no_heads, (0, 1))
    with pytest.raises(BadInput, match="needs vocab_size"):
        block_tensors(no_heads, "embed")
    with pytest.raises(BadInput, match="block vision"):
        block_tensors(shape_of(TinyLlama()), "vision")
