"""Frames of the control connection between planrun and its workers: JSON, bounded, closed set."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from plancc.executor.request import Id, Outcome, RankReport, Request, Sampled
from plancc.ir.document import Frozen
from plancc.ir.errors import RunFailed
from plancc.ir.weight_index import TensorEntry

PROTOCOL = 1
MAX_FRAME_BYTES = 64 * 2**20


class Identity(Frozen):
    """What both sides must agree on before anything is loaded."""

    protocol: int
    plancc: str
    plan: str
    weights: str


class Hello(Frozen):
    """First frame of a worker."""

    kind: Literal["hello"] = "hello"
    identity: Identity
    worker: str
    host: str
    pid: int


class Admitted(Frozen):
    """The answer to a worker of this run: the tensors that it is to load, as indexed just now."""

    kind: Literal["admitted"] = "admitted"
    identity: Identity
    fingerprint: Literal["sampled", "full"]
    entries: tuple[TensorEntry, ...]


class Refused(Frozen):
    """The answer to anyone else: every difference, with both values."""

    kind: Literal["refused"] = "refused"
    problems: tuple[str, ...]


class Beat(Frozen):
    """A worker lives; see Pulse."""

    kind: Literal["beat"] = "beat"
    phase: str
    progress: Id
    cpu_ticks: Id  # half seconds of CPU time: compiling and allocating are progress too
    is_waiting: bool


class Loaded(Frozen):
    """A worker holds its weights.

    open_ns: taking memory and readying kernels; load_ns: reading the weights.
    """

    kind: Literal["loaded"] = "loaded"
    bytes_read: Id
    open_ns: Id
    load_ns: Id


class Gather(Frozen):
    """To the first worker: open the store where all will meet, at this address."""

    kind: Literal["gather"] = "gather"
    address: str


class Gathered(Frozen):
    kind: Literal["gathered"] = "gathered"
    port: int


class Join(Frozen):
    """To every worker: meet the others; `address` and `port` are None where there are none."""

    kind: Literal["join"] = "join"
    address: str | None = None
    port: int | None = None


class Ready(Frozen):
    """A worker's links are up. allocated: bytes that it holds, by device and ledger column."""

    kind: Literal["ready"] = "ready"
    allocated: dict[str, dict[str, int]]


class Generate(Frozen):
    kind: Literal["generate"] = "generate"
    request: Request


class Report(Frozen):
    """To the driver: have every rank report, with the digests of a slot's KV if wanted."""

    kind: Literal["report_ask"] = "report_ask"
    slot: Id = 0
    num_tokens: Id = 0
    wants_kv: bool = False


class End(Frozen):
    kind: Literal["end"] = "end"


class Failed(Frozen):
    """A worker cannot go on, and says so before it ends."""

    kind: Literal["failed"] = "failed"
    exit_code: int
    text: str
    phase: str
    is_broken_link: bool = False
    non_finite_position: int | None = None


Message = Annotated[
    Hello | Admitted | Refused | Beat | Loaded | Gather | Gathered | Join | Ready | Generate
    | Report | End | Failed | Sampled | Outcome | RankReport,
    Field(discriminator="kind"),
]  # fmt: skip
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Message)


class BadFrame(RunFailed):
    """The other side does not speak this protocol."""


def to_frame(message: Message) -> bytes:
    frame = message.model_dump_json().encode()
    assert len(frame) <= MAX_FRAME_BYTES
    return frame


def from_frame(frame: bytes) -> Message:
    try:
        return _ADAPTER.validate_json(frame)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadFrame(f"control frame of {len(frame)} bytes: {first['msg']}") from None


def identity_problems(ours: Identity, theirs: Identity, who: str) -> tuple[str, ...]:
    """Every difference, with both values and who the other side is."""
    mine, other = ours.model_dump(), theirs.model_dump()
    return tuple(
        f"{name}: expected {mine[name]}, found {other[name]} at {who}"
        for name in mine
        if mine[name] != other[name]
    )
