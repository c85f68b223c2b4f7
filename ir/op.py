"""One node of the graph: a kind from a closed set, typed attributes, a type, a seat.

Attributes are one small frozen dataclass a kind. Bytes and layer indices are those of the manifest;
what a device makes of them (time, buffers) is never an attribute.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from plancc.ir.dtype import DType


class OpKind(StrEnum):
    EMBED = "embed"
    NORM = "norm"
    MIXER = "mixer"
    MLP = "mlp"
    ADD = "add"
    HEAD = "head"
    SAMPLE = "sample"
    SEND = "send"
    RECV = "recv"
    EXCHANGE = "exchange"


@dataclass(frozen=True)
class EmbedAttrs:
    weight_bytes: int


@dataclass(frozen=True)
class NormAttrs:
    """`layer` is None for the last norm, which belongs to the head."""

    layer: int | None


@dataclass(frozen=True)
class MixerAttrs:
    """KV and state are 0 until annotated; they are per token and per slot, whatever is asked."""

    layer: int
    mixer: Literal["attention", "gdn", "other"]
    weight_bytes: int
    window: int | None = None
    kv_from: int | None = None
    kv_bytes_per_token: int = 0
    state_bytes_per_slot: int = 0


@dataclass(frozen=True)
class MlpAttrs:
    """`tiles` is this op's run of the `num_tiles` tiles that the MLP is summed in."""

    layer: int
    mlp: Literal["swiglu", "geglu", "mlp", "moe"]
    weight_bytes: int
    tiles: tuple[int, int]
    num_tiles: int


@dataclass(frozen=True)
class AddAttrs:
    layer: int


@dataclass(frozen=True)
class HeadAttrs:
    weight_bytes: int
    tied: bool = False


@dataclass(frozen=True)
class SampleAttrs:
    pass


@dataclass(frozen=True)
class TransferAttrs:
    """Of send and recv: which row of the plan's links carries it, and what it is."""

    link: int
    payload: Literal["hidden", "partial", "step"]


@dataclass(frozen=True)
class ExchangeAttrs:
    layer: int
    ranks: tuple[int, ...]


Attrs = (
    EmbedAttrs
    | NormAttrs
    | MixerAttrs
    | MlpAttrs
    | AddAttrs
    | HeadAttrs
    | SampleAttrs
    | TransferAttrs
    | ExchangeAttrs
)

ATTRS: dict[OpKind, type[Attrs]] = {
    OpKind.EMBED: EmbedAttrs,
    OpKind.NORM: NormAttrs,
    OpKind.MIXER: MixerAttrs,
    OpKind.MLP: MlpAttrs,
    OpKind.ADD: AddAttrs,
    OpKind.HEAD: HeadAttrs,
    OpKind.SAMPLE: SampleAttrs,
    OpKind.SEND: TransferAttrs,
    OpKind.RECV: TransferAttrs,
    OpKind.EXCHANGE: ExchangeAttrs,
}
"""The attributes that an op of a kind carries."""

COMMUNICATION = frozenset({OpKind.SEND, OpKind.RECV, OpKind.EXCHANGE})


@dataclass(frozen=True)
class TensorType:
    """`rows` is the most that one step carries."""

    rows: int
    width: int
    dtype: DType | Literal["int64"]


@dataclass(frozen=True)
class Seat:
    """Where an op runs; ranks are numbered through the stages in order."""

    stage: int
    rank: int


@dataclass(frozen=True)
class Op:
    name: str
    kind: OpKind
    inputs: tuple[str, ...]
    attrs: Attrs
    type: TensorType
    seat: Seat | None = None
