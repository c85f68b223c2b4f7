"""Weights of a GGUF file arrive under Hugging Face's names, in its row order, bit for bit."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_checkpoints import TinyLlama, decode, encode, tensor_values
from plancc_gguf import Gguf, gguf_tensors, interleave, write_gguf
from plancc_model_folders import read_tensors
from safetensors.numpy import load_file

from plancc.compiler.gguf_import.dequantise import to_bfloat16
from plancc.compiler.gguf_import.import_gguf import import_gguf
from plancc.compiler.gguf_import.tensor_map import rotary_rows
from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.ir.dtype import DType
from plancc.ir.errors import BadInput

# Rows of 64 and 96 are whole blocks of 32 for the quantised kinds.
SPECS = [
    TinyLlama(),
    TinyLlama(num_layers=2, num_heads=2, num_kv_heads=1, head_dim=48, tied=True),
    TinyLlama(num_layers=1, num_kv_heads=4, attention_bias=True, mlp_bias=True),
]


def imported(tmp_path: Path, made: Gguf, dtype: DType = "float32", **flags: int) -> Path:
    folder = tmp_path / "imported"
    import_gguf(write_gguf(tmp_path / "toy.gguf", made), folder, dtype=dtype, **flags)
    return folder


def values_of(folder: Path, dtype: str) -> dict[str, np.ndarray]:
    return {name: decode(data, dtype).reshape(shape) for name, (_, shape, data) in
            read_tensors(folder / "model.safetensors").items()}  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_float32_comes_through_unchanged(tmp_path: Path, spec: TinyLlama) -> None:
    found = load_file(imported(tmp_path, Gguf(spec)) / "model.safetensors")
    expected = tensor_values(spec)
    assert set(found) == set(expected)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_kind_is_what_the_gguf_reader_gives_rounded_once(
    tmp_path: Path, kind: str, dtype: DType
) -> None:
    spec = TinyLlama(num_layers=1)
    found = values_of(imported(tmp_path, Gguf(spec, kind=kind), dtype), dtype)
    whole = {}
    for tensor in gguf.GGUFReader(tmp_path / "toy.gguf").tensors:
        whole[tensor.name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    for theirs, name in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
        ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
    ):
        expected = decode(encode(whole[theirs], dtype), dtype).reshape(whole[theirs].shape)
        assert np.array_equal(found[name], expected), name
    query = found["model.layers.0.self_attn.q_proj.weight"]
    expected = decode(encode(whole["blk.0.attn_q.weight"], dtype), dtype).reshape(query.shape)
    assert np.array_equal(interleave(query, spec.num_heads), expected)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("head_dim", [2, 16, 64])
def test_rotary_rows_undo_the_converters_interleaving(heads: int, head_dim: int) -> None:
    rows = np.arange(heads * head_dim)
    order = rotary_rows(0, heads * head_dim, head_dim)
    assert np.array_equal(interleave(rows, heads)[order], rows)
    pieces = [rotary_rows(first, min(first + 5, len(rows)), head_dim)
              for first in range(0, len(rows), 5)]  # fmt: skip
    assert np.array_equal(np.concatenate(pieces), order)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
def test_bfloat16_rounds_as_torch_rounds(bits: list[int]) -> None:
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    found = to_bfloat16(values)
    finite = ~np.isnan(values)
    assert np.array_equal(found[finite], expected[finite])
    assert np.isnan((found.astype(np.uint32) << 16).view(np.float32)[~finite]).all()


def test_ties_go_to_even() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x3F808001], dtype=np.uint32).view(np.float32)
    assert to_bfloat16(values).tolist() == [0x3F80, 0x3F82, 0x3F81]


def test_shards_hold_every_tensor_once_and_none_is_larger_than_asked(tmp_path: Path) -> None:
    folder = imported(tmp_path, Gguf(SPECS[0]), shard_bytes=100_000)
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    whole = {name: values for file in files for name, values in load_file(folder / file).items()}
    expected = tensor_values(SPECS[0])
    assert all(np.array_equal(whole[name], expected[name]) for name in expected)
    assert manifest_of_folder(folder).manifest.weights is not None
    sizes = [sum(v.nbytes for v in load_file(folder / file).values()) for file in files]
    assert max(sizes) <= 100_000


def test_large_matrices_come_in_blocks_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = values_of(imported(tmp_path, Gguf(SPECS[0])), "float32")
    monkeypatch.setattr("plancc.compiler.gguf_import.dequantise._BLOCK_ELEMENTS", 300)
    import_gguf(tmp_path / "toy.gguf", tmp_path / "blocks", dtype="float32")
    blocks = values_of(tmp_path / "blocks", "float32")
    assert all(np.array_equal(whole[name], blocks[name]) for name in whole)


def test_float16_refuses_a_number_beyond_its_range(tmp_path: Path) -> None:
    def enlarge(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors["blk.1.ffn_up.weight"][3, 5] = 70000.0
        return tensors

    made = Gguf(tensors=enlarge)
    with pytest.raises(BadInput, match=r"blk.1.ffn_up.weight: 70000 is beyond float16's 65504"):
        imported(tmp_path, made, "float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.gguf"]


def test_a_missing_a_foreign_and_a_wrong_tensor_are_all_named(tmp_path: Path) -> None:
    def change(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        del tensors["blk.2.ffn_gate.weight"]
        tensors["blk.0.attn_q_norm.weight"] = np.ones(16)
        tensors["output_norm.weight"] = np.ones(32)
        return tensors

    with pytest.raises(BadInput) as caught:
        imported(tmp_path, Gguf(tensors=change))
    text = str(caught.value)
    assert "tensor blk.2.ffn_gate.weight: missing" in text
    assert "tensor blk.0.attn_q_norm.weight: not part of a llama of 4 layers" in text
    assert "tensor output_norm.weight: expected shape (64,), found (32,)" in text


def test_the_builder_itself_moves_rows() -> None:
    spec = TinyLlama(num_layers=1)
    moved = gguf_tensors(spec)["blk.0.attn_k.weight"]
    assert not np.array_equal(moved, tensor_values(spec)["model.layers.0.self_attn.k_proj.weight"])
