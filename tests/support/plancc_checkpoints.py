"""Tiny random llama checkpoints in Hugging Face's layout: seeded, no element is ever zero.

    folder = write_checkpoint(tmp_path / "toy", TinyLlama(num_layers=7, dtype="bfloat16"))

Weights do not depend on `num_shards`, `tied` or the layer count: every tensor has its own seed, so
two specs that differ in one thing share all the other tensors.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from plancc_toy_tokenizer import SPECIAL_TOKENS, write_tokenizer

CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class TinyLlama:
    """Sizes and switches of a checkpoint. The default is 4 layers, about 260 KB in float32.

    `rope_scaling` is written as given. `spelling` "new" writes `dtype` and `rope_parameters`, as
    transformers 5 does; "old" writes `torch_dtype`, `rope_theta` and `rope_scaling`.
    """

    num_layers: int = 4
    hidden_size: int = 64
    intermediate_size: int = 96
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int | None = None  # None: hidden_size / num_heads, and not written
    vocab_size: int = 320
    dtype: str = "float32"
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    max_context: int = 512
    norm_eps: float = 1e-5
    sliding_window: int | None = None  # given: a Mistral
    num_shards: int = 1
    spelling: str = "old"
    seed: int = 0

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_heads


def tensor_shapes(spec: TinyLlama) -> dict[str, tuple[int, ...]]:
    """Every tensor by name with its shape, in the order of the layers."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    queries, keys = spec.num_heads * spec.head_width, spec.num_kv_heads * spec.head_width
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (spec.vocab_size, hidden)}
    for index in range(spec.num_layers):
        prefix = f"model.layers.{index}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        for name, rows, columns, has_bias in (
            ("self_attn.q_proj", queries, hidden, spec.attention_bias),
            ("self_attn.k_proj", keys, hidden, spec.attention_bias),
            ("self_attn.v_proj", keys, hidden, spec.attention_bias),
            ("self_attn.o_proj", hidden, queries, spec.attention_bias),
            ("mlp.gate_proj", inner, hidden, spec.mlp_bias),
            ("mlp.up_proj", inner, hidden, spec.mlp_bias),
            ("mlp.down_proj", hidden, inner, spec.mlp_bias),
        ):
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    shapes["model.norm.weight"] = (hidden,)
    if not spec.tied:
        shapes["lm_head.weight"] = (spec.vocab_size, hidden)
    return shapes


def tensor_values(spec: TinyLlama) -> dict[str, np.ndarray]:
    """Every tensor in float32, already rounded to the checkpoint's dtype."""
    return {name: _values(name, shape, spec) for name, shape in tensor_shapes(spec).items()}


def write_checkpoint(folder: Path, spec: TinyLlama) -> Path:
    """config, generation config, tokenizer and weights in `folder`; returns `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config_of(spec))
    write_json(folder / "generation_config.json", generation_config_of(spec))
    write_tokenizer(folder, spec.vocab_size)
    encoded = {
        name: (CODES[spec.dtype], values.shape, encode(values, spec.dtype))
        for name, values in tensor_values(spec).items()
    }
    if spec.num_shards == 1:
        write_safetensors(folder / "model.safetensors", encoded)
    else:
        _write_shards(folder, encoded, spec.num_shards)
    return folder


def config_of(spec: TinyLlama) -> dict[str, Any]:
    """config.json as transformers writes it for this model."""
    is_mistral = spec.sliding_window is not None
    config: dict[str, Any] = {
        "architectures": ["MistralForCausalLM" if is_mistral else "LlamaForCausalLM"],
        "model_type": "mistral" if is_mistral else "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "hidden_act": "silu",
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context,
        "rms_norm_eps": spec.norm_eps,
        "tie_word_embeddings": spec.tied,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    if spec.head_dim is not None:
        config["head_dim"] = spec.head_dim
    if is_mistral:
        config["sliding_window"] = spec.sliding_window
    else:
        config |= {"attention_bias": spec.attention_bias, "mlp_bias": spec.mlp_bias}
    scaling = dict(spec.rope_scaling) if spec.rope_scaling else None
    if spec.spelling == "new":
        rope = {"rope_theta": spec.rope_theta} | (scaling or {"rope_type": "default"})
        return config | {"dtype": spec.dtype, "rope_parameters": rope}
    return config | {
        "torch_dtype": spec.dtype,
        "rope_theta": spec.rope_theta,
        "rope_scaling": scaling,
    }


def generation_config_of(spec: TinyLlama) -> dict[str, Any]:
    """Two stop tokens: the end of a turn and the end of a text."""
    return {"bos_token_id": 0, "eos_token_id": [2, 0], "do_sample": False}


def write_safetensors(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
) -> None:
    """Write (code, shape, bytes) by name in the given order, header padded to 8 bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (code, shape, data) in tensors.items():
        spans = [offset, offset + len(data)]
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": spans}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Little-endian bytes; bfloat16 by round to nearest, ties to even."""
    if dtype != "bfloat16":
        return values.astype({"float32": "<f4", "float16": "<f2"}[dtype]).tobytes()
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def decode(data: bytes, dtype: str) -> np.ndarray:
    """float32 values of `encode`d bytes, one dimension."""
    if dtype != "bfloat16":
        kind = {"float32": "<f4", "float16": "<f2"}[dtype]
        return np.frombuffer(data, kind).astype(np.float32)
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _values(name: str, shape: tuple[int, ...], spec: TinyLlama) -> np.ndarray:
    """Norms near one, biases of 0.1, matrices that keep the size of what passes through them."""
    rng = np.random.default_rng([spec.seed, zlib.crc32(name.encode())])
    drawn = rng.standard_normal(shape)
    drawn = np.copysign(np.maximum(np.abs(drawn), 1e-3), drawn)
    if name.endswith("norm.weight"):
        drawn = 1.0 + 0.1 * drawn
    elif name.endswith(".bias"):
        drawn = 0.1 * drawn
    elif name == "model.embed_tokens.weight":
        drawn = 0.2 * drawn  # small beside what the layers add, so a tied head does not echo
    else:
        drawn = drawn / np.sqrt(shape[1])
    return decode(encode(drawn, spec.dtype), spec.dtype).reshape(shape)


def _write_shards(
    folder: Path, encoded: Mapping[str, tuple[str, tuple[int, ...], bytes]], num_shards: int
) -> None:
    """Runs of tensors, as even in count as can be, and the index that names them."""
    names = list(encoded)
    weight_map = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        first, end = (len(names) * part // num_shards for part in (shard, shard + 1))
        write_safetensors(folder / file, {name: encoded[name] for name in names[first:end]})
        weight_map |= dict.fromkeys(names[first:end], file)
    total = sum(len(data) for _, _, data in encoded.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(folder / "model.safetensors.index.json", index)


assert SPECIAL_TOKENS[2] == "<|im_end|>"  # what eos_token_id above means
