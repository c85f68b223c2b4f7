"""What the CPU kernels do not do: refused by name, before anything is allocated. Imports none."""

from functools import partial

from plancc.executor.backend.layer_limits import attention_problems, check_layers, dense_problems
from plancc.executor.group import Group
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tiles import Span

MAX_HEAD_DIM, MAX_QUERIES_PER_KV_HEAD = 256, 64
"""As in plancc.kernels.tables, which takes long to import; a test compares them."""


def check_rank(
    model: ModelShape, runtime: Runtime, layers: Span, tiles: Span, group: Group | None
) -> None:
    """Raise BadInput for a rank of a plan that cannot be opened on a CPU device."""
    check_runnable(model, layers)


def check_runnable(model: ModelShape, layers: Span) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves."""
    check_layers(model, layers, "cpu", partial(_problems, model))


def _problems(model: ModelShape, layer: Layer) -> list[str]:
    found = attention_problems(layer, most_queries=MAX_QUERIES_PER_KV_HEAD,
                               most_head_dim=MAX_HEAD_DIM)  # fmt: skip
    found += dense_problems(layer) or _gate_problems(layer)
    return found + _rope_problems(model, layer)


def _gate_problems(layer: Layer) -> list[str]:
    assert layer.mlp is not None
    kind = layer.mlp.kind
    return [] if kind == "swiglu" else [f"mlp: expected swiglu, found {kind}"]


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
