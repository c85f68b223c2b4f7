"""What the CPU kernels do not do: refused by name, before anything is allocated."""

from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span
from plancc.kernels.tables import MAX_HEAD_DIM, MAX_QUERIES_PER_KV_HEAD


def check_runnable(model: ModelShape, layers: Span) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves."""
    if model.geometry is None:
        raise BadInput(f"{model.name}: running needs geometry in the manifest, found none")
    problems = [
        f"layer {index}: {problem}"
        for index in range(*layers)
        for problem in _problems(model, model.layers[index])
    ]
    if problems:
        raise BadInput("\n".join((f"{model.name} cannot run on a cpu device:", *problems)))


def _problems(model: ModelShape, layer: Layer) -> list[str]:
    mixer, mlp, found = layer.mixer, layer.mlp, []
    heads, kv_heads, size = mixer.num_heads, mixer.num_kv_heads, mixer.head_dim
    if mixer.kind != "attention" or layer.kv_from is not None:
        found.append(f"expected attention with KV of its own, found {mixer.kind}")
    if not (heads and kv_heads and size):
        found.append("needs num_heads, num_kv_heads and head_dim")
    else:
        if heads % kv_heads or heads // kv_heads > MAX_QUERIES_PER_KV_HEAD:
            found.append(f"num_heads {heads}: expected num_kv_heads {kv_heads} times at most "
                         f"{MAX_QUERIES_PER_KV_HEAD}")  # fmt: skip
        if size > MAX_HEAD_DIM:
            found.append(f"head_dim {size}: expected at most {MAX_HEAD_DIM}")
        if mixer.kv_width() != 2 * kv_heads * size:
            found.append("k_dim and v_dim: expected num_kv_heads * head_dim each")
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        found.append("needs a dense MLP with its intermediate_size")
    elif mlp.kind != "swiglu":
        found.append(f"mlp: expected swiglu, found {mlp.kind}")
    return found + _rope_problems(model, layer)


def _rope_problems(model: ModelShape, layer: Layer) -> list[str]:
    assert model.geometry is not None
    ropes, name = model.geometry.rope, layer.mixer.rope
    if name is None and len(ropes) > 1:
        return [f"mixer.rope: expected one of {', '.join(sorted(ropes))}, found none"]
    if name is not None and name not in ropes:
        return [f"mixer.rope: expected one of {', '.join(sorted(ropes))}, found {name!r}"]
    rope = ropes.get(name) if name is not None else next(iter(ropes.values()), None)
    size = layer.mixer.head_dim
    if rope is None or not size:
        return []
    if rope.rotary_dim is not None and rope.rotary_dim > size:
        return [f"rope: rotary_dim {rope.rotary_dim} exceeds head_dim {size}"]
    if (rope.rotary_dim or size) % 2:
        return [f"rope: expected an even number of dimensions, found {rope.rotary_dim or size}"]
    sizes = sorted(
        {other.mixer.head_dim or 0 for other in model.layers if other.mixer.rope == name}
    )
    if rope.rotary_dim is None and len(sizes) > 1:
        return [f"rope: without rotary_dim its layers need one head_dim, found {sizes}"]
    return []
