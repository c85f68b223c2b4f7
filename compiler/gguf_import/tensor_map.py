"""Hugging Face's tensor names and row order from GGUF's.

For rotary, GGUF pairs rows (0, 1), (2, 3) ... of a llama's query and key heads, and Hugging Face
pairs row i of a head's first half with row i of its second: the same rows in another order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plancc.compiler.gguf_import.gguf_file import GgufFile, StoredRows, layer_of
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape
from plancc.ir.tensors import block_tensors, layer_tensors

_ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ONLY_IN_GGUF = ("rope_freqs.weight",)  # config.json says it instead


@dataclass(frozen=True)
class TensorCopy:
    """One tensor to write: its new name and shape, its source, and the source's row of each row."""

    name: str
    shape: tuple[int, ...]
    source: StoredRows
    row_order: Callable[[int, int], Any]  # rows [first, end) as an index into the source


def tensor_copies(file: GgufFile, model: ModelShape) -> tuple[TensorCopy, ...]:
    """Every tensor of the model in load order. Raises BadInput naming all that do not fit."""
    specs = [*block_tensors(model, "embed")]
    for index in range(len(model.layers)):
        specs += layer_tensors(model, index)
    specs += [spec for spec in block_tensors(model, "head") if spec not in specs]
    sources = {spec.name: gguf_name(spec.name) for spec in specs}
    problems = [f"tensor {name}: missing" for name in sources.values() if name not in file.tensors]
    unknown = sorted(set(file.tensors) - set(sources.values()) - set(_ONLY_IN_GGUF))
    problems += [f"tensor {name}: not part of a llama of {len(model.layers)} layers"
                 for name in unknown]  # fmt: skip
    for spec in specs:
        found = file.tensors.get(sources[spec.name])
        if found is not None and found.shape != spec.shape:
            problems.append(f"tensor {found.name}: expected shape {spec.shape}, "
                            f"found {found.shape}")  # fmt: skip
    if problems:
        raise BadInput("\n".join(f"{file.path}: {problem}" for problem in problems))
    return tuple(
        TensorCopy(spec.name, spec.shape, file.tensors[source], _row_order(source, model))
        for spec, source in ((spec, sources[spec.name]) for spec in specs)
    )


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face llama tensor."""
    if name in _ENDS:
        return _ENDS[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_LAYER[part]}.{kind}"


def _row_order(source: str, model: ModelShape) -> Callable[[int, int], Any]:
    index = layer_of(source)
    if index is None or (".attn_q." not in source and ".attn_k." not in source):
        return lambda first, end: slice(first, end)
    head_dim = model.layers[index].mixer.head_dim
    assert head_dim is not None
    return lambda first, end: rotary_rows(first, end, head_dim)


def rotary_rows(first: int, end: int, head_dim: int) -> Any:
    """GGUF's row of each Hugging Face row in [first, end): half h, pair i lies at 2i + h."""
    import numpy as np

    rows = np.arange(first, end)
    head, within = rows // head_dim, rows % head_dim
    half, pair = within // (head_dim // 2), within % (head_dim // 2)
    return head * head_dim + 2 * pair + half
