"""annotate: what each mixer keeps, per token and per slot, at the asked cache dtype.

before  %l0.mixer = mixer(%l0.norm1) {..., kv_bytes_per_token=0, state_bytes_per_slot=0}
after   %l0.mixer = mixer(%l0.norm1) {..., kv_bytes_per_token=4096, state_bytes_per_slot=0}
"""

from dataclasses import replace

from plancc.compiler.compilation import Compilation
from plancc.ir.manifest import ModelShape
from plancc.ir.op import MixerAttrs, Op
from plancc.ir.sizes import kv_bytes_per_token


def annotate(state: Compilation) -> Compilation:
    """Raises BadInput where the cache dtype asks for geometry that the manifest does not give."""
    kv_dtype = state.ask.kv_dtype or state.manifest.dtype
    graph = state.graph.map(lambda op: _annotated(op, state.manifest, kv_dtype))
    return replace(state, graph=graph)


def _annotated(op: Op, model: ModelShape, kv_dtype: str) -> Op:
    if not isinstance(op.attrs, MixerAttrs):
        return op
    layer = model.layers[op.attrs.layer]
    attrs = replace(
        op.attrs,
        kv_bytes_per_token=kv_bytes_per_token(model, layer, kv_dtype),
        state_bytes_per_slot=layer.state_bytes_per_slot,
    )
    return replace(op, attrs=attrs)
