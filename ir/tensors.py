"""Which tensors, and which rows or columns of them, a rank holds: from layers, tiles and blocks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import tile_bounds

Cut = Literal["whole", "rows", "columns"]
Fused = Literal["concatenated", "interleaved"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor by name with its whole shape, and how a TP share cuts it.

    fused: gate and up lie in one matrix of 2 F rows, one after the other or by turns. It is cut as
    F rows, each part on its own.
    """

    name: str
    shape: tuple[int, ...]
    cut: Cut = "whole"
    fused: Fused | None = None


@dataclass(frozen=True)
class TensorPiece:
    """What one rank reads of a tensor: rows [first, end) of dim 0, or columns of dim 1.

    Of a fused tensor these are rows of gate, then the same of up, wherever they lie in the file.
    """

    spec: TensorSpec
    span: tuple[int, int] | None = None  # None: all of it

    @property
    def shape(self) -> tuple[int, ...]:
        if self.span is None:
            return self.spec.shape
        width = self.span[1] - self.span[0]
        rows, *rest = self.spec.shape
        if self.spec.cut == "columns":
            return (rows, width)
        return (2 * width if self.spec.fused else width, *rest)

    def row_runs(self) -> Iterator[tuple[int, int]]:
        """(first row in the file, how many), in the order of the piece's rows."""
        rows = self.spec.shape[0]
        first, end = self.span if self.span and self.spec.cut == "rows" else (0, rows)
        if self.span is None or self.spec.fused is None:
            yield first, end - first
        elif self.spec.fused == "concatenated":
            yield first, end - first
            yield rows // 2 + first, end - first
        else:
            yield from ((2 * row + part, 1) for part in (0, 1) for row in range(first, end))


def layer_tensors(model: ModelShape, index: int) -> tuple[TensorSpec, ...]:
    """Every tensor of a layer, by the family's naming. Raises BadInput for an unknown family."""
    return _builder(model)(model, index)


def block_tensors(model: ModelShape, name: str) -> tuple[TensorSpec, ...]:
    """Tensors of `embed` or `head`; a tied head reads the embedding's matrix."""
    _builder(model)
    if model.vocab_size is None:
        raise BadInput(f"{model.name}: running needs vocab_size in the manifest, found none")
    matrix = (model.vocab_size, model.hidden_size)
    embed = TensorSpec("model.embed_tokens.weight", matrix)
    if name == "embed":
        return (embed,)
    if name != "head":
        raise BadInput(f"block {name}: family {model.family} has tensors for embed and head only")
    head = embed if model.has_tied_head else TensorSpec("lm_head.weight", matrix)
    return (TensorSpec("model.norm.weight", (model.hidden_size,)), head)


def rank_pieces(
    model: ModelShape,
    layers: tuple[int, int],
    *,
    share: tuple[int, int] | None = None,
    blocks: tuple[str, ...] = (),
    has_mixer: bool = True,
) -> tuple[TensorPiece, ...]:
    """Pieces of a rank in load order, each tensor once: blocks first, then layers.

    `share` is a run of tiles of every dense MLP in the stage; None means all of them. Without the
    mixer there are only what a share multiplies by: norms, and what is added once to the sum, lie
    with the mixer.
    """
    pieces: dict[str, TensorPiece] = {}
    for name in blocks:
        for spec in block_tensors(model, name):
            pieces[spec.name] = TensorPiece(spec)
    for index in range(*layers):
        for spec in layer_tensors(model, index):
            if not (has_mixer or spec.cut != "whole"):
                continue
            pieces[spec.name] = TensorPiece(spec, _span(model.layers[index], spec, share))
    return tuple(pieces.values())


def _span(layer: Layer, spec: TensorSpec, share: tuple[int, int] | None) -> tuple[int, int] | None:
    if spec.cut == "whole" or not isinstance(layer.mlp, DenseMlp):
        return None
    assert layer.mlp.intermediate_size is not None
    if share is None:  # by turns is no order that a kernel reads
        return (0, layer.mlp.intermediate_size) if spec.fused == "interleaved" else None
    bounds = tile_bounds(layer.mlp.intermediate_size, layer.mlp.group, layer.mlp.num_tiles)
    return (bounds[share[0]], bounds[share[1]])


def _llama_layer(model: ModelShape, index: int) -> tuple[TensorSpec, ...]:
    layer = model.layers[index]
    mixer, mlp, hidden = layer.mixer, layer.mlp, model.hidden_size
    if not (mixer.num_heads and mixer.num_kv_heads and mixer.head_dim):
        raise BadInput(f"{model.name}: layer {index}: running needs num_heads, num_kv_heads and "
                       f"head_dim in the manifest")  # fmt: skip
    if not isinstance(mlp, DenseMlp) or mlp.intermediate_size is None:
        raise BadInput(f"{model.name}: layer {index}: running needs a dense MLP with its "
                       f"intermediate_size, found {mlp.kind if mlp else 'none'}")  # fmt: skip
    queries, keys = mixer.num_heads * mixer.head_dim, mixer.num_kv_heads * mixer.head_dim
    prefix, inner = f"model.layers.{index}.", mlp.intermediate_size
    bias = model.geometry is not None and model.geometry.mlp_bias
    return tuple(
        _with_prefix(
            prefix,
            _norm("input_layernorm", hidden),
            _linear("self_attn.q_proj", queries, hidden, bias=mixer.q_bias),
            _linear("self_attn.k_proj", keys, hidden, bias=mixer.q_bias),
            _linear("self_attn.v_proj", keys, hidden, bias=mixer.q_bias),
            _linear("self_attn.o_proj", hidden, queries, bias=mixer.o_bias),
            _norm("post_attention_layernorm", hidden),
            *_gate_and_up(inner, hidden, bias=bias, fused=mlp.fused),
            _linear("mlp.down_proj", hidden, inner, cut="columns", bias=bias),
        )
    )


def _gate_and_up(
    inner: int, hidden: int, *, bias: bool, fused: Fused | None
) -> Iterator[tuple[TensorSpec, ...]]:
    if fused:
        name = "mlp.gate_up_proj"
        yield _linear(name, 2 * inner, hidden, cut="rows", bias=bias, fused=fused)
        return
    for name in ("mlp.gate_proj", "mlp.up_proj"):
        yield _linear(name, inner, hidden, cut="rows", bias=bias)


def _norm(name: str, hidden: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec(f"{name}.weight", (hidden,)),)


def _linear(
    name: str,
    rows: int,
    columns: int,
    *,
    cut: Cut = "whole",
    bias: bool = False,
    fused: Fused | None = None,
) -> tuple[TensorSpec, ...]:
    """A bias is cut as the rows are that it is added to."""
    weight = TensorSpec(f"{name}.weight", (rows, columns), cut, fused)
    bias_cut: Cut = "rows" if cut == "rows" else "whole"
    return (weight, TensorSpec(f"{name}.bias", (rows,), bias_cut, fused)) if bias else (weight,)


def _with_prefix(prefix: str, *groups: tuple[TensorSpec, ...]) -> Iterator[TensorSpec]:
    for group in groups:
        for spec in group:
            yield replace(spec, name=prefix + spec.name)


_FAMILIES: dict[str, Callable[[ModelShape, int], tuple[TensorSpec, ...]]] = {"llama": _llama_layer}


def _builder(model: ModelShape) -> Callable[[ModelShape, int], tuple[TensorSpec, ...]]:
    if model.family not in _FAMILIES:
        raise BadInput(f"{model.name}: family {model.family!r} can be compiled but not run; "
                       f"planrun knows {', '.join(sorted(_FAMILIES))}")  # fmt: skip
    return _FAMILIES[model.family]
