"""What else an imported folder holds, and files and folders that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from plancc_checkpoints import TinyLlama
from plancc_gguf import Gguf, write_gguf

from plancc.compiler.gguf_import.import_gguf import import_gguf
from plancc.compiler.gguf_import.rope_factors import llama3_divisors
from plancc.compiler.manifest_cmd import import_gguf_command
from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.ir.errors import BadInput


def imported(tmp_path: Path, made: Gguf | None = None) -> Path:
    import_gguf(write_gguf(tmp_path / "toy.gguf", made), tmp_path / "toy")
    return tmp_path / "toy"


def config(folder: Path, name: str = "config.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def refusal(tmp_path: Path, made: Gguf) -> str:
    path = write_gguf(tmp_path / "toy.gguf", made)
    with pytest.raises(BadInput) as caught:
        import_gguf(path, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_the_config_says_what_the_fields_say(tmp_path: Path) -> None:
    spec = TinyLlama(rope_theta=5e5, norm_eps=1e-6, tied=True, head_dim=32, max_context=4096)
    found = config(imported(tmp_path, Gguf(spec)))
    expected = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "vocab_size": 320, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "rope_scaling": None,
        "tie_word_embeddings": True, "attention_bias": False, "torch_dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 2,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected


def test_an_imported_folder_makes_a_manifest(tmp_path: Path) -> None:
    model = manifest_of_folder(imported(tmp_path)).manifest
    assert (len(model.layers), model.dtype, model.name) == (4, "bfloat16", "toy")
    assert model.weights is not None
    assert [entry.file for entry in model.weights.files] == [
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json"]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 2),
        ({"tokenizer.ggml.eot_token_id": np.uint32(0)}, [2, 0]),
        ({"tokenizer.ggml.eot_token_id": np.uint32(2)}, 2),
        ({"tokenizer.ggml.eos_token_id": np.uint32(0)}, [0, 2]),  # <|im_end|> ends a turn
        ({"tokenizer.ggml.eos_token_id": np.uint32(0),
          "tokenizer.ggml.eot_token_id": np.uint32(1),
          "tokenizer.ggml.eom_token_id": np.uint32(5)}, [0, 1, 5]),
        ({"tokenizer.ggml.eos_token_id": None}, 2),
    ],
)  # fmt: skip
def test_every_token_that_ends_a_turn_is_a_stop_token(
    tmp_path: Path, fields: dict[str, Any], expected: object
) -> None:
    folder = imported(tmp_path, Gguf(fields=fields))
    assert config(folder, "generation_config.json")["eos_token_id"] == expected


def test_yarn_and_linear_scaling_are_said_in_the_config(tmp_path: Path) -> None:
    fields = {"llama.rope.scaling.type": "yarn",
              "llama.rope.scaling.factor": np.float32(4.0),
              "llama.rope.scaling.original_context_length": np.uint32(128),
              "llama.rope.scaling.yarn_beta_fast": np.float32(16.0)}  # fmt: skip
    found = config(imported(tmp_path, Gguf(fields=fields)))["rope_scaling"]
    assert found == {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0,
                     "original_max_position_embeddings": 128}  # fmt: skip


def add_divisors(divisors: list[float]) -> Any:
    return lambda tensors: tensors | {"rope_freqs.weight": np.array(divisors, np.float32)}


@pytest.mark.parametrize(("factor", "head_dim"), [(8.0, 128), (32.0, 64)])
def test_llama3_scaling_is_recovered_from_its_divisors(
    tmp_path: Path, factor: float, head_dim: int
) -> None:
    spec = TinyLlama(head_dim=head_dim, rope_theta=5e5, max_context=131072)
    inverse = [5e5 ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
    divisors = []
    for frequency in inverse:  # by wavelength, as the model's own code states it
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192:
            divisors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / 3
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    assert min(divisors) == 1.0
    assert max(divisors) == factor
    folder = imported(tmp_path, Gguf(spec, tensors=add_divisors(divisors)))
    assert config(folder)["rope_scaling"] == {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    assert manifest_of_folder(folder).manifest.max_context == 131072


def test_divisors_that_are_not_llama3s_are_refused(tmp_path: Path) -> None:
    divisors = [1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 8.0]
    assert len(llama3_divisors(8.0, theta=1e4, head_dim=16)) == len(divisors)
    text = refusal(tmp_path, Gguf(tensors=add_divisors(divisors)))
    assert "rope_freqs.weight: expected the divisors of Llama 3" in text


def test_divisors_of_one_mean_no_scaling(tmp_path: Path) -> None:
    folder = imported(tmp_path, Gguf(tensors=add_divisors([1.0] * 8)))
    assert config(folder)["rope_scaling"] is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"llama.expert_count": np.uint32(8)}, "found 8 experts"),
        ({"llama.embedding_length": None}, "field llama.embedding_length: missing"),
        ({"llama.attention.head_count_kv": [2, 2, 1, 2]}, "one number for all layers"),
        ({"llama.rope.dimension_count": np.uint32(8)}, "expected the key width 16, found 8"),
        ({"llama.rope.scaling.type": "longrope"}, "none, linear or yarn, found 'longrope'"),
        ({"llama.attention.sliding_window": np.uint32(64)}, "sliding_window: not known"),
        ({"llama.rope.scaling.attn_factor": np.float32(2)}, "attn_factor: not known"),
        ({"split.count": np.uint32(3)}, "one of 3 parts"),
        ({"tokenizer.ggml.tokens": None}, "field tokenizer.ggml.tokens: missing"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "expected 320 tokens"),
        ({"tokenizer.ggml.eos_token_id": np.uint32(999)}, "expected an id below 320, found 999"),
        ({"tokenizer.ggml.eot_token_id": np.uint32(320)}, "expected an id below 320, found 320"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "expected 320 types, found 2"),
        ({"tokenizer.ggml.model": "rwkv"}, "expected one of gpt2, llama, found 'rwkv'"),
        ({"tokenizer.ggml.pre": "tekken"}, "found 'tekken'"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "expected two pieces, found 'a b c'"),
    ],
)
def test_a_file_that_is_no_plain_llama_is_refused(
    tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(tmp_path, Gguf(fields=fields))


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    text = refusal(tmp_path, Gguf(architecture="gemma3"))
    assert "general.architecture: plancc imports 'llama', found 'gemma3'" in text


@pytest.mark.parametrize("keep", [0, 3, 30, 2000, -1, -100_000])
def test_a_cut_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = write_gguf(tmp_path / "toy.gguf")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInput, match=r"toy\.gguf"):
        import_gguf(path, tmp_path / "toy")
    assert not (tmp_path / "toy").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"PK\3\4 not this one")
    with pytest.raises(BadInput, match="expected it to begin with b'GGUF'"):
        import_gguf(tmp_path / "x", tmp_path / "toy")
    with pytest.raises(BadInput, match="No such file"):
        import_gguf(tmp_path / "no", tmp_path / "toy")


def test_a_folder_in_use_is_kept_and_force_replaces_only_an_import(tmp_path: Path) -> None:
    folder = imported(tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    other = write_gguf(tmp_path / "other.gguf", Gguf(TinyLlama(seed=1)))
    with pytest.raises(BadInput, match="--force replaces an earlier import"):
        import_gguf(other, folder)
    assert (folder / "model.safetensors").read_bytes() == before
    import_gguf(other, folder, force=True)
    assert (folder / "model.safetensors").read_bytes() != before
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match=r"thesis\.txt was not written by import-gguf"):
        import_gguf(other, folder, force=True)
    assert (folder / "thesis.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.gguf", "toy", "toy.gguf"]


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "toy.gguf")
    runner = CliRunner()
    result = runner.invoke(import_gguf_command, [str(path), "-o", str(tmp_path / "a")])
    assert result.stdout.endswith("39 tensors, 321.1 KiB in bfloat16, tokenizer of 320 tokens\n")
    result = runner.invoke(
        import_gguf_command, [str(path), "-o", str(tmp_path / "b"), "--dtype", "float32", "--json"]
    )
    assert json.loads(result.stdout)["weight_bytes"] == 4 * 164416
