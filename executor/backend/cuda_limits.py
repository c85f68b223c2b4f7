"""What the GPU kernels do not do: refused by name, before anything is allocated."""

from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tiles import Span

MAX_SLOTS, MAX_HEAD_DIM, MAX_QUERIES = 64, 256, 64


def check_runnable(model: ModelShape, runtime: Runtime, layers: Span, tiles: Span) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves."""
    if model.geometry is None:
        raise BadInput(f"{model.name}: running needs geometry in the manifest, found none")
    problems = [
        f"layer {index}: {problem}"
        for index in range(*layers)
        for problem in _problems(model.layers[index], tiles)
    ]
    if model.geometry.mlp_bias:
        problems.append("geometry.mlp_bias: expected false, found true")
    if runtime.slots > MAX_SLOTS:
        problems.append(f"slots {runtime.slots}: expected at most {MAX_SLOTS}")
    if problems:
        raise BadInput("\n".join((f"{model.name} cannot run on a cuda device:", *problems)))


def _problems(layer: Layer, tiles: Span) -> list[str]:
    mixer, mlp, found = layer.mixer, layer.mlp, []
    heads, kv_heads, size = mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
    if mixer.kind != "attention" or layer.kv_from is not None:
        found.append(f"expected attention with KV of its own, found {mixer.kind}")
    if not (heads and kv_heads and size):
        found.append("needs num_heads, num_kv_heads and head_dim")
    else:
        if heads % kv_heads or heads // kv_heads > MAX_QUERIES:
            found.append(f"num_heads {heads}: expected num_kv_heads {kv_heads} times at most "
                         f"{MAX_QUERIES}")  # fmt: skip
        if size > MAX_HEAD_DIM:
            found.append(f"head_dim {size}: expected at most {MAX_HEAD_DIM}")
        if mixer.kv_width() != 2 * kv_heads * size:
            found.append("k_dim and v_dim: expected num_kv_heads * head_dim each")
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        found.append("needs a dense MLP with its intermediate_size")
    elif mlp.kind != "swiglu" or mlp.fused is not None:
        found.append(f"mlp: expected swiglu with gate and up apart, found {mlp.kind}")
    elif tiles != (0, mlp.num_tiles):
        found.append(f"tiles {tiles}: a share of an MLP cannot run here yet, expected all "
                     f"{mlp.num_tiles}")  # fmt: skip
    return found
