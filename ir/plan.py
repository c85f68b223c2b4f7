"""plan.json: where every layer runs, and why. Format plancc.plan/1 (design.md section 7)."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from plancc.ir.ask import Ask
from plancc.ir.canonical import sha256_of, to_json
from plancc.ir.document import Frozen, parse_document, read_json
from plancc.ir.dtype import DType
from plancc.ir.instruction import Index, Instruction
from plancc.ir.manifest import ModelShape
from plancc.ir.units import Bytes

PLAN_FORMAT = "plancc.plan/1"
Ns = Annotated[int, Field(ge=0)]
Transport = Literal["local", "p2p", "staged", "gloo", "nccl"]


class Input(Frozen):
    name: str
    sha256: str


class Inputs(Frozen):
    model: Input
    topology: Input


class Proof(Frozen):
    """What the solver proved, for exactly these inputs.

    value and bound are of the chosen shape's objective; best and best_bound those of T*, the best
    over all shapes in `space`, from which `margin` leads to the choice. Units: ns, or tokens for
    `context`. gap is (value - bound) / value of the chosen shape within its own rule.
    """

    name: str
    version: str
    space: str
    status: Literal["optimal", "feasible"]
    objective: str
    value: int
    bound: int
    best: int
    best_bound: int
    gap: float


class Provenance(Frozen):
    plancc: str
    solver: Proof


class Ledger(Frozen):
    """Bytes of one device; total is their sum, free_after is budget - total."""

    weights: Bytes
    kv: Bytes
    state: Bytes
    blocks: Bytes
    hop_buffers: Bytes
    workspace: Bytes
    overhead: Bytes
    total: Bytes
    free_after: int

    def parts(self) -> dict[str, int]:
        """What fills the device, by name, in this order; without the two sums."""
        sums = ("total", "free_after")
        return {name: getattr(self, name) for name in Ledger.model_fields if name not in sums}


class PlanDevice(Frozen):
    name: str
    host: str
    kind: str
    uuid: str | None = None
    budget_bytes: int  # free - reserve, as measured
    reserve_bytes: Bytes = 0
    ledger: Ledger


class StageRank(Frozen):
    """A seat in a stage; a device that the ask repeats has several seats."""

    device: str
    mlp_tiles: tuple[Index, Index]


class Stage(Frozen):
    layers: tuple[Index, Index]
    mixer: Literal["single", "replicated", "owned"] = "single"
    ranks: Annotated[tuple[StageRank, ...], Field(min_length=1)]
    blocks: tuple[str, ...] = ()  # on the stage's first rank


class PlanLink(Frozen):
    """One direction between two ranks. `step` carries what a step is: positions and token ids."""

    from_: Annotated[Index, Field(alias="from")]
    to: Index
    payload: Literal["hidden", "partial", "step"]
    transport: Transport
    bytes_per_row: Bytes
    slots: Annotated[int, Field(ge=1)]


class Program(Frozen):
    """What a rank does in one step; ranks are numbered through the stages in order."""

    rank: Index
    stage: Index
    device: str
    instructions: tuple[Instruction, ...]


class Worker(Frozen):
    """One OS process, and the ranks' devices in it."""

    name: str
    host: str
    devices: tuple[str, ...]
    threads: Annotated[int, Field(ge=1)] | None = None


class Timeouts(Frozen):
    """Seconds without progress, not of total time."""

    start_s: float = 60.0
    load_s: float = 60.0
    step_s: float = 60.0
    heartbeat_s: float = 1.0


class HostAddress(Frozen):
    name: str
    address: str


class Runtime(Frozen):
    context: int
    slots: int
    page_tokens: int
    pages: int
    prefill_chunk: int
    dtype: DType
    kv_dtype: DType
    kernels: dict[str, str]
    hosts: tuple[HostAddress, ...]
    workers: tuple[Worker, ...]
    timeouts: Timeouts = Timeouts()


class PlanWeights(Frozen):
    """`source` is copied from the manifest and read relative to the plan's own folder."""

    source: str | None
    format: str
    fingerprint: Literal["sampled", "full"]
    sha256: str


class StageTime(Frozen):
    compute_ns: Ns
    exchange_ns: Ns = 0
    hop_ns: Ns  # to the next stage, or back to the head; 0 for the last where nothing is sent


class StepTime(Frozen):
    """A decode step at the asked context, summed over stages."""

    step_ns: Ns
    tokens_per_s: float
    stages: tuple[StageTime, ...]


class PrefillTime(Frozen):
    """`prompt` tokens in chunks; (chunks + stages - 1) beats of the slowest stage or hop."""

    prompt: int
    chunks: int
    total_ns: Ns
    tokens_per_s: float
    stages: tuple[StageTime, ...]


class Predicted(Frozen):
    decode: StepTime
    prefill: PrefillTime | None = None  # None: the topology gives no matmul rate


class Alternative(Frozen):
    """A shape that lost: slower by how much, or short by how many bytes and where."""

    shape: str
    verdict: Literal["chosen", "slower", "within margin", "does not fit", "not allowed"]
    value: int | None = None  # of the objective
    short_bytes: int | None = None
    device: str | None = None
    note: str | None = None


class Plan(Frozen):
    format: Literal["plancc.plan/1"] = "plancc.plan/1"
    digest: str
    provenance: Provenance
    inputs: Inputs
    ask: Ask
    model: ModelShape
    devices: tuple[PlanDevice, ...]
    stages: tuple[Stage, ...]
    links: tuple[PlanLink, ...]
    programs: tuple[Program, ...]
    runtime: Runtime
    weights: PlanWeights | None
    predicted: Predicted
    alternatives: tuple[Alternative, ...] = ()

    def data(self) -> dict[str, Any]:
        """Plain data in the format's key order."""
        return self.model_dump(mode="json", by_alias=True)

    def computed_digest(self) -> str:
        """sha256 of every key but the digest itself."""
        data = self.data()
        del data["digest"]
        return sha256_of(data)

    def to_json(self) -> str:
        return to_json(self.data())

    def device(self, name: str) -> PlanDevice:
        return next(device for device in self.devices if device.name == name)


def read_plan(path: Path) -> Plan:
    """The plan in a file, its digest not yet compared. Raises BadInput as documents do."""
    return parse_document(Plan, read_json(path, "plan"), str(path), PLAN_FORMAT)
