"""Llamas of other families' sizes: what planrun cannot run yet, as far as loading and time go.

Matrices, heads, layers and vocabulary are the other model's; its norms of q and k, its activation,
its windows and its scalings are not there.
"""

from collections.abc import Mapping

from plancc.compiler.frontends.architectures import read_architecture
from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape

_LACKS: Mapping[str, str] = {
    "qwen3": "norms of q and k by head",
    "gemma3": "norms of q and k by head, norms after attention and MLP, GELU, scaled embeddings",
}


def check_family(shape: ModelShape) -> None:
    """Raise BadInput for a family that planrun does not run, naming what it lacks."""
    if shape.family == "llama":
        return
    lacks = _LACKS.get(shape.family, "layers of kinds")
    raise BadInput(f"{shape.name}: family {shape.family!r} can be compiled but not run: no device "
                   f"has kernels for its {lacks}; --as-llama writes a llama of its sizes, where "
                   f"all layers are attention and a dense MLP")  # fmt: skip


def as_llama(shape: ModelShape) -> ModelShape:
    """A llama of the shape's sizes. Raises BadInput where layers differ in more than a window, or
    are no attention with a dense MLP."""
    mixers = {(layer.mixer.kind, layer.mixer.num_heads, layer.mixer.num_kv_heads,
               layer.mixer.head_dim) for layer in shape.layers}  # fmt: skip
    widths = {layer.mlp.intermediate_size if isinstance(layer.mlp, DenseMlp) else None
              for layer in shape.layers}  # fmt: skip
    kind, heads, kv_heads, head_dim = min(mixers, key=str)
    (inner, *others) = widths
    if len(mixers) > 1 or others or kind != "attention" or inner is None or not head_dim:
        raise BadInput(f"{shape.name}: expected all layers alike, of attention and a dense MLP; "
                       f"found {sorted({m[0] for m in mixers})} and intermediate sizes "
                       f"{sorted(map(str, widths))}")  # fmt: skip
    ropes = shape.geometry.rope.values() if shape.geometry else ()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": shape.hidden_size,
        "intermediate_size": inner,
        "num_hidden_layers": len(shape.layers),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_context,
        "rms_norm_eps": shape.geometry.norm_eps if shape.geometry else 1e-6,
        "rope_theta": max((rope.theta for rope in ropes), default=1e4),
        "tie_word_embeddings": shape.has_tied_head,
        "torch_dtype": shape.dtype,
    }
    name = f"{shape.name}-as-llama"
    return read_architecture(config, where=shape.name, name=name).shape
