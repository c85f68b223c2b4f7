"""build: the manifest as ops, nothing placed.

before  (nothing)
after   %embed = embed() {...}   %l0.norm1 = norm(%embed)   %l0.mixer = mixer(%l0.norm1)
        %l0.add1 = add(%embed, %l0.mixer)   ... %final = norm(...)   %head   %sample
"""

from collections.abc import Iterator
from dataclasses import replace

from plancc.compiler.compilation import Compilation
from plancc.ir.ask import Ask
from plancc.ir.graph import Graph
from plancc.ir.layers import Layer, MoeMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.op import (
    AddAttrs,
    EmbedAttrs,
    HeadAttrs,
    MixerAttrs,
    MlpAttrs,
    NormAttrs,
    Op,
    OpKind,
    SampleAttrs,
    TensorType,
)
from plancc.ir.sizes import step_rows


def build(state: Compilation) -> Compilation:
    return replace(state, graph=build_graph(state.manifest, state.ask))


def build_graph(model: ModelShape, ask: Ask) -> Graph:
    """Embed, every layer, last norm, head, sample; a model without those blocks gets them empty.

    Rows are the most that one step carries; logits are wanted of one row a slot.
    """
    hidden = TensorType(step_rows(ask.slots, ask.prefill_chunk), model.hidden_size, model.dtype)
    embed, head = model.block("embed"), model.block("head")
    ops = [Op("embed", OpKind.EMBED, (), EmbedAttrs(embed.weight_bytes if embed else 0), hidden)]
    for index, layer in enumerate(model.layers):
        ops.extend(_layer_ops(index, layer, ops[-1].name, hidden))
    logits = TensorType(ask.slots, model.vocab_size or 0, "float32")
    head_attrs = HeadAttrs(head.weight_bytes if head else 0, model.has_tied_head)
    ops += [
        Op("final", OpKind.NORM, (ops[-1].name,), NormAttrs(None), hidden),
        Op("head", OpKind.HEAD, ("final",), head_attrs, logits),
        Op("sample", OpKind.SAMPLE, ("head",), SampleAttrs(), TensorType(ask.slots, 1, "int64")),
    ]
    return Graph(tuple(ops), ("sample",))


def _layer_ops(index: int, layer: Layer, residual: str, hidden: TensorType) -> Iterator[Op]:
    """Norm and mixer added to the residual, then norm and MLP where the layer has one."""
    at = f"l{index}"
    mixer = MixerAttrs(
        layer=index,
        mixer=layer.mixer.kind,
        weight_bytes=layer.mixer.weight_bytes,
        window=layer.mixer.window,
        kv_from=layer.kv_from,
    )
    yield Op(f"{at}.norm1", OpKind.NORM, (residual,), NormAttrs(index), hidden)
    yield Op(f"{at}.mixer", OpKind.MIXER, (f"{at}.norm1",), mixer, hidden)
    yield Op(f"{at}.add1", OpKind.ADD, (residual, f"{at}.mixer"), AddAttrs(index), hidden)
    if layer.mlp is None:
        return
    yield Op(f"{at}.norm2", OpKind.NORM, (f"{at}.add1",), NormAttrs(index), hidden)
    yield Op(f"{at}.mlp", OpKind.MLP, (f"{at}.norm2",), _mlp_attrs(index, layer), hidden)
    yield Op(f"{at}.add2", OpKind.ADD, (f"{at}.add1", f"{at}.mlp"), AddAttrs(index), hidden)


def _mlp_attrs(index: int, layer: Layer) -> MlpAttrs:
    mlp = layer.mlp
    assert mlp is not None
    tiles = 1 if isinstance(mlp, MoeMlp) else mlp.num_tiles
    return MlpAttrs(
        index, mlp.kind, layer.weight_bytes - layer.mixer.weight_bytes, (0, tiles), tiles
    )
