"""A tiny llama as a GGUF file, laid out as llama.cpp's converter does, by the gguf package."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from plancc_checkpoints import TinyLlama, tensor_values
from plancc_toy_tokenizer import CHAT_TEMPLATE, toy_vocabulary

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Gguf:
    """What to write. `kinds` gives the number format of matrices; `tensors` may change them all."""

    spec: TinyLlama = field(default_factory=TinyLlama)
    architecture: str = "llama"
    kind: str = "F32"
    pre: str | None = "gpt-2"
    fields: Mapping[str, Any] = field(default_factory=dict)  # key -> value, None takes it out
    tensors: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = lambda tensors: tensors


def write_gguf(path: Path, made: Gguf | None = None) -> Path:
    """Write the file and return its path."""
    made = made or Gguf()
    writer = gguf.GGUFWriter(path, made.architecture)
    for key, value in (fields_of(made) | made.fields).items():
        if value is not None:
            _add(writer, key, value)
    for name, values in made.tensors(gguf_tensors(made.spec)).items():
        kind = gguf.GGMLQuantizationType[made.kind]
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, values.astype(np.float32))
        elif kind == gguf.GGMLQuantizationType.F16:
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(spec: TinyLlama) -> dict[str, np.ndarray]:
    """Every tensor under GGUF's name, query and key rows in GGUF's order."""
    tensors = {}
    for name, values in tensor_values(spec).items():
        if ".q_proj." in name or ".k_proj." in name:
            heads = spec.num_heads if ".q_proj." in name else spec.num_kv_heads
            values = interleave(values, heads)
        tensors[gguf_name(name)] = values
    return tensors


def interleave(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head: first half and second half taken in turn."""
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def fields_of(made: Gguf) -> dict[str, Any]:
    """Fields of a file made from the spec, with the toy tokenizer."""
    spec, arch = made.spec, made.architecture
    tokens, merges = toy_vocabulary(spec.vocab_size)
    types = [3, 3, 3] + [1] * (len(tokens) - 3) + [5] * (spec.vocab_size - len(tokens))
    tokens += [f"[PAD{index}]" for index in range(len(tokens), spec.vocab_size)]
    return {
        "general.name": "toy",
        f"{arch}.block_count": np.uint32(spec.num_layers),
        f"{arch}.context_length": np.uint32(spec.max_context),
        f"{arch}.embedding_length": np.uint32(spec.hidden_size),
        f"{arch}.feed_forward_length": np.uint32(spec.intermediate_size),
        f"{arch}.attention.head_count": np.uint32(spec.num_heads),
        f"{arch}.attention.head_count_kv": np.uint32(spec.num_kv_heads),
        f"{arch}.attention.layer_norm_rms_epsilon": np.float32(spec.norm_eps),
        f"{arch}.attention.key_length": np.uint32(spec.head_width) if spec.head_dim else None,
        f"{arch}.attention.value_length": np.uint32(spec.head_width) if spec.head_dim else None,
        f"{arch}.rope.dimension_count": np.uint32(spec.head_width),
        f"{arch}.rope.freq_base": np.float32(spec.rope_theta),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": made.pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": np.uint32(0),
        "tokenizer.ggml.eos_token_id": np.uint32(2),
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, np.uint32):
        writer.add_uint32(key, int(value))
    elif isinstance(value, np.float32):
        writer.add_float32(key, float(value))
    else:
        assert isinstance(value, Sequence), f"{key}: {value!r}"
        writer.add_array(key, list(value))
