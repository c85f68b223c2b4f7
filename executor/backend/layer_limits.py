"""What no kind of device here runs: refused by name, before anything is allocated."""

from collections.abc import Callable

from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span


def check_layers(
    model: ModelShape, layers: Span, kind: str, problems_of: Callable[[Layer], list[str]],
    more: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Raise BadInput naming every field of the rank's layers, and all else, that is not served."""
    if model.geometry is None:
        raise BadInput(f"{model.name}: running needs geometry in the manifest, found none")
    problems = [
        f"layer {index}: {problem}"
        for index in range(*layers)
        for problem in problems_of(model.layers[index])
    ]
    if problems or more:
        lines = (f"{model.name} cannot run on a {kind} device:", *problems, *more)
        raise BadInput("\n".join(lines))


def attention_problems(layer: Layer, *, most_queries: int, most_head_dim: int) -> list[str]:
    """`most_queries`: query heads for one head of K and V."""
    mixer, found = layer.mixer, []
    heads, kv_heads, size = mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
    if mixer.kind != "attention" or layer.kv_from is not None:
        found.append(f"expected attention with KV of its own, found {mixer.kind}")
    if not (heads and kv_heads and size):
        return [*found, "needs num_heads, num_kv_heads and head_dim"]
    if heads % kv_heads or heads // kv_heads > most_queries:
        found.append(f"num_heads {heads}: expected num_kv_heads {kv_heads} times at most "
                     f"{most_queries}")  # fmt: skip
    if size > most_head_dim:
        found.append(f"head_dim {size}: expected at most {most_head_dim}")
    if mixer.kv_width() != 2 * kv_heads * size:
        found.append("k_dim and v_dim: expected num_kv_heads * head_dim each")
    return found


def dense_problems(layer: Layer) -> list[str]:
    mlp = layer.mlp
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        return ["needs a dense MLP with its intermediate_size"]
    return []
