"""`plancc manifest` on whole folders: what it writes, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from plancc_checkpoints import TinyLlama, tensor_shapes, write_checkpoint
from plancc_model_folders import (
    change_config,
    change_tensors,
    manifest_refusal,
    run_manifest,
    stored_bytes,
)

from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.compiler.manifest_yaml import manifest_text
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest, read_manifest

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}


def manifest(folder: Path, **flags: Any) -> ModelManifest:
    return manifest_of_folder(folder, **flags).manifest


@pytest.mark.parametrize("spec", [
    TinyLlama(),
    TinyLlama(num_layers=5, num_shards=3, dtype="bfloat16", spelling="new"),
    TinyLlama(tied=True, dtype="float16"),
    TinyLlama(attention_bias=True, head_dim=24, num_kv_heads=1, rope_theta=5e5),
    TinyLlama(mlp_bias=True, dtype="bfloat16"),
])  # fmt: skip
def test_bytes_of_layers_and_blocks_are_those_of_the_stored_tensors(
    tmp_path: Path, spec: TinyLlama
) -> None:
    model = manifest(write_checkpoint(tmp_path / "toy", spec))
    sizes = {name: ITEMSIZE[spec.dtype] for name in tensor_shapes(spec)}
    for name, shape in tensor_shapes(spec).items():
        for dim in shape:
            sizes[name] *= dim
    for index, layer in enumerate(model.layers):
        inside = {name: size for name, size in sizes.items() if f".layers.{index}." in name}
        mlp = sum(size for name, size in inside.items() if ".mlp." in name)
        assert isinstance(layer.mlp, DenseMlp)
        once = sum(size for name, size in inside.items() if name.endswith("down_proj.bias"))
        assert (layer.mlp.weight_bytes, layer.mlp.uncut_bytes) == (mlp - once, once)
        assert layer.mixer.weight_bytes == sum(inside.values()) - mlp
        assert layer.mixer.kv_bytes_per_token == (
            2 * spec.num_kv_heads * spec.head_width * ITEMSIZE[spec.dtype]
        )
    embed, head = model.block("embed"), model.block("head")
    assert embed is not None
    assert head is not None
    matrix = sizes["model.embed_tokens.weight"]
    assert (embed.weight_bytes, embed.place) == (matrix, "first")
    assert head.weight_bytes == matrix + sizes["model.norm.weight"]
    assert (head.place, head.tied_to) == ("last", "embed" if spec.tied else None)
    assert len(model.layers) == spec.num_layers


def test_the_written_file_reads_back_as_the_same_manifest(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "models" / "toy", TinyLlama(num_shards=2))
    output = tmp_path / "plans" / "model.yaml"
    output.parent.mkdir()
    result = run_manifest(folder, "-o", str(output))
    assert result.exit_code == 0
    read = read_manifest(output)
    assert read.source == "../models/toy"
    assert read == manifest(folder, source="../models/toy")
    assert read.name == "toy"
    assert "4 layers" in result.stdout


def test_the_text_is_one_line_a_tensor_and_the_same_each_time(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    text = manifest_text(manifest(folder))
    assert manifest_text(manifest(folder)) == text
    lines = [line for line in text.splitlines() if "sha256" in line and "offset" in line]
    assert len(lines) == len(tensor_shapes(TinyLlama()))
    keys = list(yaml.safe_load(text))
    assert keys == ["format", "name", "family", "dtype", "hidden_size", "vocab_size",
                    "max_context", "geometry", "layers", "blocks", "weights"]  # fmt: skip


def test_without_an_output_the_manifest_goes_to_stdout(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    result = run_manifest(folder, "--name", "Toy 2", "--fingerprint", "full")
    data = yaml.safe_load(result.stdout)
    assert (data["name"], data["weights"]["fingerprint"]) == ("Toy 2", "full")


def test_json_says_what_was_written(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    output = tmp_path / "m.yaml"
    said = json.loads(run_manifest(folder, "-o", str(output), "--json").stdout)
    read = read_manifest(output)
    assert read.weights is not None
    assert said["digest"] == read.digest()
    assert said["weights_digest"] == read.weights.digest()
    assert (said["layers"], said["tensors"]) == (4, 39)


def test_geometry_is_that_of_the_config(tmp_path: Path) -> None:
    spec = TinyLlama(sliding_window=96, norm_eps=1e-6, rope_theta=12345.0, num_kv_heads=1)
    model = manifest(write_checkpoint(tmp_path / "toy", spec))
    mixer = model.layers[0].mixer
    assert (mixer.window, mixer.num_heads, mixer.num_kv_heads, mixer.head_dim) == (96, 4, 1, 16)
    assert model.geometry is not None
    assert (model.geometry.norm_eps, model.geometry.rope["default"].theta) == (1e-6, 12345.0)
    assert (model.family, model.vocab_size, model.max_context) == ("llama", 320, 512)


def test_a_llama_ignores_a_sliding_window_that_only_a_mistral_has(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    change_config(folder, sliding_window=64)
    assert manifest(folder).layers[0].mixer.window is None


def test_both_spellings_of_a_config_give_one_manifest(tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    shapes = []
    for spelling in ("old", "new"):
        spec = TinyLlama(rope_scaling=scaling, spelling=spelling)
        shapes.append(manifest(write_checkpoint(tmp_path / spelling, spec), name="toy").shape())
    assert shapes[0] == shapes[1]


def test_what_old_checkpoints_store_beside_the_weights_is_let_be(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_tensors(folder, lambda tensors: tensors | {name: ("F16", (8,), b"\1" * 16)})
    index = manifest(folder).weights
    assert index is not None
    assert index.tensor(name) is not None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "found 'GPT2LMHeadModel'"),
        ({"architectures": None}, "field architectures: expected one name, found None"),
        ({"hidden_size": None}, "field hidden_size"),
        ({"hidden_size": ...}, "field hidden_size: missing"),
        ({"rms_norm_eps": ...}, "field rms_norm_eps: missing"),
        ({"num_hidden_layers": "4"}, "tensor"),
        ({"intermediate_size": -96}, "field intermediate_size"),
        ({"hidden_act": "gelu"}, "expected 'silu', found 'gelu'"),
        ({"num_attention_heads": 3}, "hidden_size 64 is not a multiple"),
        ({"num_key_value_heads": 3}, "expected a divisor of num_attention_heads 4, found 3"),
        ({"torch_dtype": ...}, "field dtype (or torch_dtype): missing"),
        ({"torch_dtype": "float8"}, "field torch_dtype: expected one of float32"),
        ({"tie_word_embeddings": "false"}, "expected true or false, found 'false'"),
        ({"dtype": "float16"}, "dtype and torch_dtype differ"),
        ({"rope_scaling": {"type": "foo"}}, "found 'foo'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "found 'gptq'"),
    ],
)
def test_a_config_that_cannot_be_read_as_meant_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    change_config(folder, **changes)
    if changes == {"num_hidden_layers": "4"}:
        assert manifest(folder).layers  # a number in quotes is still that number
        return
    text = manifest_refusal(folder)
    assert "config.json" in text
    assert expected in text


Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: {k: v for k, v in t.items() if "2.mlp.up" not in k},
         "tensor model.layers.2.mlp.up_proj.weight: missing, expected float32 [96, 64]"),
        (lambda t: t | {"model.layers.4.input_layernorm.weight": ("F32", (64,), bytes(256))},
         "tensor model.layers.4.input_layernorm.weight in model.safetensors: not part of a llama"),
        (lambda t: t | {"model.norm.weight": ("F32", (32,), bytes(128))},
         "tensor model.norm.weight in model.safetensors: expected shape [64], found [32]"),
        (lambda t: t | {"model.norm.weight": ("BF16", (64,), bytes(128))},
         "expected dtype float32 (config.json), found bfloat16"),
        (lambda t: t | {"model.norm.weight": ("I8", (64,), bytes(64))},
         "expected dtype float32 (config.json), found I8"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_the_config_are_named(
    tmp_path: Path, change: Callable[[Tensors], Tensors], expected: str
) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    change_tensors(folder, change)
    assert expected in manifest_refusal(folder)


def test_many_problems_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    change_config(folder, torch_dtype="bfloat16")
    text = manifest_refusal(folder)
    assert "39 tensor(s) do not fit config.json" in text
    assert text.count("\n") == 9
    assert "and 31 more" in text


def test_a_config_alone_is_told_what_to_do_and_other_families_before_any_download(
    tmp_path: Path,
) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    (folder / "model.safetensors").unlink()
    assert "download the model's *.safetensors here too" in manifest_refusal(folder)
    change_config(folder, architectures=["Qwen3ForCausalLM"])
    words = manifest_refusal(folder)
    assert "plancc reads LlamaForCausalLM, MistralForCausalLM; found 'Qwen3ForCausalLM'" in words
    assert "plans/models" in words
    assert "plancc schema model" in words


def test_nothing_is_written_over_when_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama())
    output = tmp_path / "model.yaml"
    output.write_text("mine")
    (folder / "model.safetensors").write_bytes(b"")
    assert run_manifest(folder, "-o", str(output)).exit_code == 2
    assert output.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.yaml", "toy"]


def test_strays_are_listed_only_when_asked(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama(num_shards=2))
    (folder / "consolidated.safetensors").write_bytes(b"whatever")
    quiet, loud = run_manifest(folder), run_manifest(folder, "--verbose")
    assert "consolidated" not in quiet.stderr
    assert "note: consolidated.safetensors: left out" in loud.stderr
    assert quiet.stdout == loud.stdout


def test_only_samples_of_the_weights_are_read(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama(vocab_size=4000))
    before = stored_bytes(folder)
    told: list[int] = []
    total: list[int] = []
    manifest(folder, started=total.append, hashed=told.append)
    assert sum(told) == sum(total) < sum(before.values()) / 3
