"""Llama 2 and 3, SmolLM2 and Mistral: config.json -> the shape of the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from plancc.compiler.frontends.rope import DEFAULT_ROPE, read_rope
from plancc.ir.document import describe
from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.errors import BadInput
from plancc.ir.layers import Block, Count, DenseMlp, Layer, Mixer
from plancc.ir.manifest import Factor, Geometry, ModelShape


class LlamaConfig(BaseModel):
    """The fields of config.json that decide shapes or numbers. Others do not, and are let be."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    vocab_size: Count
    max_position_embeddings: Count
    rms_norm_eps: Factor
    hidden_act: str
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: Count | None = None

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class Reading:
    """What a frontend makes of a config: the shape, and notes for the user (stderr)."""

    shape: ModelShape
    notes: tuple[str, ...]


def read_llama(
    config: Mapping[str, Any],
    *,
    where: str,
    name: str,
    dtype: DType,
    tied: bool,
    window: bool = False,
) -> Reading:
    """The shape of a llama. `window`: whether sliding_window means anything (Mistral).

    Raises BadInput naming file, field, found and expected.
    """
    try:
        fields = LlamaConfig.model_validate(dict(config))
    except ValidationError as error:
        raise BadInput(describe(error, where)) from None
    _check(fields, where)
    rope = read_rope(
        config,
        where=where,
        head_dim=fields.head_width,
        max_position=fields.max_position_embeddings,
    )
    if set(rope.ropes) != {DEFAULT_ROPE}:
        raise BadInput(f"{where}: field rope_parameters: expected one set for all layers, found "
                       f"{', '.join(sorted(rope.ropes))}")  # fmt: skip
    shape = ModelShape(
        name=name,
        family="llama",
        dtype=dtype,
        hidden_size=fields.hidden_size,
        vocab_size=fields.vocab_size,
        max_context=rope.max_context,
        geometry=Geometry(norm_eps=fields.rms_norm_eps, rope=rope.ropes, mlp_bias=fields.mlp_bias),
        layers=(_layer(fields, ITEMSIZE[dtype], window=window),) * fields.num_hidden_layers,
        blocks=_blocks(fields, ITEMSIZE[dtype], tied=tied),
    )
    return Reading(shape, rope.notes)


def _check(fields: LlamaConfig, where: str) -> None:
    """Guards against a config that says something this family does not compute."""
    if fields.hidden_act != "silu":
        raise BadInput(f"{where}: field hidden_act: expected 'silu', found {fields.hidden_act!r}")
    heads = fields.num_attention_heads
    if fields.head_dim is None and fields.hidden_size % heads:
        raise BadInput(f"{where}: field head_dim: missing, and hidden_size {fields.hidden_size} "
                       f"is not a multiple of num_attention_heads {heads}")  # fmt: skip
    if heads % fields.kv_heads:
        raise BadInput(f"{where}: field num_key_value_heads: expected a divisor of "
                       f"num_attention_heads {heads}, found {fields.kv_heads}")  # fmt: skip


def _layer(fields: LlamaConfig, itemsize: int, *, window: bool) -> Layer:
    hidden, width = fields.hidden_size, fields.head_width
    queries, keys = fields.num_attention_heads * width, fields.kv_heads * width
    elements = hidden * (queries + 2 * keys) + queries * hidden + 2 * hidden
    if fields.attention_bias:
        elements += queries + 2 * keys + hidden
    return Layer(
        mixer=Mixer(
            kind="attention",
            weight_bytes=elements * itemsize,
            kv_bytes_per_token=2 * keys * itemsize,
            window=fields.sliding_window if window else None,
            num_heads=fields.num_attention_heads,
            num_kv_heads=fields.kv_heads,
            head_dim=width,
            q_bias=fields.attention_bias,
            o_bias=fields.attention_bias,
        ),
        mlp=_mlp(fields, itemsize),
    )


def _mlp(fields: LlamaConfig, itemsize: int) -> DenseMlp:
    """Biases of gate and up are cut with their rows; that of down is added once, on one rank."""
    biases = 2 if fields.mlp_bias else 0
    return DenseMlp(
        kind="swiglu",
        weight_bytes=(3 * fields.hidden_size + biases) * fields.intermediate_size * itemsize,
        intermediate_size=fields.intermediate_size,
        uncut_bytes=fields.hidden_size * itemsize if fields.mlp_bias else 0,
    )


def _blocks(fields: LlamaConfig, itemsize: int, *, tied: bool) -> tuple[Block, Block]:
    """The embedding matrix, and the head with the final norm."""
    matrix = fields.vocab_size * fields.hidden_size * itemsize
    norm = fields.hidden_size * itemsize
    return (
        Block(name="embed", weight_bytes=matrix, place="first"),
        Block(
            name="head",
            weight_bytes=matrix + norm,
            place="last",
            tied_to="embed" if tied else None,
        ),
    )
