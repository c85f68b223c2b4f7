"""config.json and generation_config.json of a llama, from GGUF's fields."""

from typing import Any

from plancc.compiler.gguf_import.gguf_file import GgufFile
from plancc.compiler.gguf_import.rope_factors import llama3_scaling
from plancc.ir.errors import BadInput

_END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")
_CONTROL = 3
_KNOWN = {
    "llama.attention.": {"head_count", "head_count_kv", "layer_norm_rms_epsilon", "key_length",
                         "value_length"},
    "llama.rope.": {"freq_base", "dimension_count", "scaling.type", "scaling.factor",
                    "scaling.original_context_length", "scaling.finetuned",
                    "scaling.yarn_beta_fast", "scaling.yarn_beta_slow"},
}  # fmt: skip


def read_config(file: GgufFile, dtype: str) -> dict[str, Any]:
    """config.json as transformers reads it. Raises BadInput for what is no plain llama."""
    architecture = file.need("general.architecture")
    if architecture != "llama":
        raise BadInput(f"{file.path}: field general.architecture: plancc imports 'llama', found "
                       f"{architecture!r}")  # fmt: skip
    if file.get("llama.expert_count", 0):
        raise BadInput(f"{file.path}: field llama.expert_count: expected a dense model, found "
                       f"{file.get('llama.expert_count')} experts")  # fmt: skip
    _check_keys(file)
    heads, hidden = _heads(file), int(file.need("llama.embedding_length"))
    head_dim = int(file.get("llama.attention.key_length", hidden // heads["num_attention_heads"]))
    _check_head(file, head_dim)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": _single(file, "llama.feed_forward_length"),
        "num_hidden_layers": int(file.need("llama.block_count")),
        **heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "vocab_size": _tensor_rows(file, "token_embd.weight"),
        "max_position_embeddings": int(file.need("llama.context_length")),
        "rms_norm_eps": _shortest(file.need("llama.attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "rope_theta": _shortest(file.get("llama.rope.freq_base", 10000.0)),
        "rope_scaling": _rope_scaling(file, head_dim),
        "torch_dtype": dtype,
    }
    return config | _token_ids(file)


def read_generation_config(file: GgufFile) -> dict[str, Any]:
    """Ids that begin and end a text; every id that ends a turn is a stop token."""
    ids = _token_ids(file)
    stops = [ids["eos_token_id"]] if "eos_token_id" in ids else []
    named = [file.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
    if named[0] is None:
        named += _ends_of_turn(file)
    stops += [token for token in named if token is not None and token not in stops]
    if stops:
        ids["eos_token_id"] = stops if len(stops) > 1 else stops[0]
    return ids


def _token_ids(file: GgufFile) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "padding": "pad"}
    ids = {ours: file.get(f"tokenizer.ggml.{theirs}_token_id") for theirs, ours in names.items()}
    return {f"{name}_token_id": int(token) for name, token in ids.items() if token is not None}


def _ends_of_turn(file: GgufFile) -> list[int]:
    """Control tokens known to end a turn, for files that were written before the field was."""
    tokens, kinds = file.get("tokenizer.ggml.tokens", []), file.get("tokenizer.ggml.token_type", [])
    return [
        index
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _CONTROL and token in _END_OF_TURN
    ]


def _heads(file: GgufFile) -> dict[str, int]:
    queries = _single(file, "llama.attention.head_count")
    key = "llama.attention.head_count_kv"
    keys = _single(file, key) if key in file.fields else queries
    return {"num_attention_heads": queries, "num_key_value_heads": keys}


def _single(file: GgufFile, key: str) -> int:
    """A count that must be the same in every layer."""
    value = file.need(key)
    values = set(value) if isinstance(value, list) else {value}
    if len(values) != 1:
        raise BadInput(f"{file.path}: field {key}: expected one number for all layers, found "
                       f"{sorted(values)}")  # fmt: skip
    return int(values.pop())


def _check_keys(file: GgufFile) -> None:
    """A field of attention or rotary that is not read here would be ignored silently."""
    for prefix, known in _KNOWN.items():
        for key in file.fields:
            if key.startswith(prefix) and key.removeprefix(prefix) not in known:
                raise BadInput(f"{file.path}: field {key}: not known to plancc, and it changes "
                               f"numbers; found {file.get(key)!r}")  # fmt: skip


def _check_head(file: GgufFile, head_dim: int) -> None:
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        found = file.get(key, head_dim)
        if found != head_dim:
            raise BadInput(f"{file.path}: field {key}: expected the key width {head_dim}, found "
                           f"{found}")  # fmt: skip


def _rope_scaling(file: GgufFile, head_dim: int) -> dict[str, Any] | None:
    kind = file.get("llama.rope.scaling.type", "none")
    if "rope_freqs.weight" in file.tensors:
        theta = _shortest(file.get("llama.rope.freq_base", 10000.0))
        return llama3_scaling(file, theta=theta, head_dim=head_dim)
    if kind in ("none", None):
        return None
    if kind not in ("linear", "yarn"):
        raise BadInput(f"{file.path}: field llama.rope.scaling.type: expected none, linear or "
                       f"yarn, found {kind!r}")  # fmt: skip
    scaling = {"rope_type": kind, "factor": _shortest(file.need("llama.rope.scaling.factor"))}
    for ours, theirs in (
        ("original_max_position_embeddings", "original_context_length"),
        ("beta_fast", "yarn_beta_fast"),
        ("beta_slow", "yarn_beta_slow"),
    ):
        value = file.get(f"llama.rope.scaling.{theirs}")
        if value is not None:
            scaling[ours] = _shortest(value) if isinstance(value, float) else int(value)
    return scaling


def _tensor_rows(file: GgufFile, name: str) -> int:
    if name not in file.tensors:
        raise BadInput(f"{file.path}: tensor {name}: missing")
    return file.tensors[name].shape[0]


def _shortest(value: float) -> float:
    """The decimal that a float32 was written from: 9.99999974e-06 is 1e-05."""
    import numpy as np

    return float(str(np.float32(value)))
