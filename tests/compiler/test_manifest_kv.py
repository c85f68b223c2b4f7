"""KV bytes come from fields, never from a guess (C06)."""

from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, config_of

from plancc.compiler.frontends.architectures import read_architecture
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape, read_manifest
from plancc.ir.sizes import kv_bytes_per_token, layer_kv_bytes

GIB, MIB = 2**30, 2**20


def bytes_a_token(model: ModelShape) -> int:
    return sum(kv_bytes_per_token(model, layer, model.dtype) for layer in model.layers)


def cache_bytes(model: ModelShape, context: int) -> int:
    return sum(
        layer_kv_bytes(model, layer, context=context, slots=1, prefill_chunk=512,
                       kv_dtype=model.dtype)
        for layer in model.layers
    )  # fmt: skip


def handwritten(tmp_path: Path, mixer: str, layers: int = 1) -> ModelShape:
    path = tmp_path / "model.yaml"
    path.write_text(
        "format: plancc.model/1\nname: by hand\ndtype: bfloat16\nhidden_size: 2048\n"
        f"max_context: 131072\nlayers:\n- repeat: {layers}\n  pattern:\n  - mixer: {mixer}\n"
    )
    return read_manifest(path)


def test_head_dim_128_counts_though_hidden_over_heads_is_80() -> None:
    config = config_of(TinyLlama(
        num_layers=36, hidden_size=2560, num_heads=32, num_kv_heads=8, head_dim=128,
        max_context=40960, dtype="bfloat16"))  # fmt: skip
    model = read_architecture(config, where="config.json", name="a").shape
    assert bytes_a_token(model) == 147456
    assert cache_bytes(model, 40960) == 5.625 * GIB


def test_head_dim_left_out_is_hidden_over_heads() -> None:
    spec = TinyLlama(num_layers=36, hidden_size=2560, num_heads=32, num_kv_heads=8,
                     dtype="bfloat16")  # fmt: skip
    config = config_of(spec)
    assert "head_dim" not in config
    model = read_architecture(config, where="config.json", name="a").shape
    assert bytes_a_token(model) == 92160
    assert bytes_a_token(read_architecture(
        config | {"head_dim": None}, where="config.json", name="a").shape) == 92160  # fmt: skip


def test_a_latent_cache_is_what_its_bytes_say(tmp_path: Path) -> None:
    mixer = "{kind: attention, weight_bytes: 1 MiB, kv_bytes_per_token: 1152}"
    model = handwritten(tmp_path, mixer, layers=47)
    assert bytes_a_token(model) == 54144
    assert cache_bytes(model, 8192) == 423 * MIB


def test_k_and_v_may_differ_in_width_and_from_layer_to_layer(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        "format: plancc.model/1\nname: c\ndtype: bfloat16\nhidden_size: 2048\n"
        "max_context: 4096\nlayers:\n"
        "- mixer: {kind: attention, weight_bytes: 1, k_dim: 576, v_dim: 512}\n"
        "- mixer: {kind: attention, weight_bytes: 1, k_dim: 256, v_dim: 256, window: 128}\n"
    )
    model = read_manifest(path)
    widths = [kv_bytes_per_token(model, layer, "bfloat16") for layer in model.layers]
    assert widths == [2 * (576 + 512), 2 * (256 + 256)]
    assert kv_bytes_per_token(model, model.layers[0], "float32") == 4 * (576 + 512)


@pytest.mark.parametrize("mixer", [
    "{kind: attention, weight_bytes: 1 GiB}",
    "{kind: attention, weight_bytes: 1 GiB, num_heads: 32, head_dim: 128}",
    "{kind: attention, weight_bytes: 1 GiB, num_kv_heads: 8}",
    "{kind: attention, weight_bytes: 1 GiB, k_dim: 512}",
])  # fmt: skip
def test_neither_bytes_nor_whole_geometry_is_an_error(tmp_path: Path, mixer: str) -> None:
    with pytest.raises(BadInput, match=r"expected kv_bytes_per_token, or num_kv_heads and head"):
        handwritten(tmp_path, mixer)


def test_bytes_that_contradict_the_geometry_are_refused(tmp_path: Path) -> None:
    mixer = ("{kind: attention, weight_bytes: 1, kv_bytes_per_token: 92160, num_kv_heads: 8, "
             "head_dim: 128}")  # fmt: skip
    with pytest.raises(BadInput, match="geometry and bfloat16 say 4096, found 92160"):
        handwritten(tmp_path, mixer)


def test_bytes_alone_do_not_say_another_cache_dtype(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"kind": "attention", "weight_bytes": 1, "kv_bytes_per_token": 1152}
    mixer = "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"
    model = handwritten(tmp_path, mixer)
    with pytest.raises(BadInput, match="--kv-dtype float32"):
        kv_bytes_per_token(model, model.layers[0], "float32")
