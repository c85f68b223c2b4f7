"""What is asked of a run, and what it answers: plain data, without torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plancc.executor.failures import ContextExceeded
from plancc.executor.sampling import Sampling
from plancc.ir.document import Frozen
from plancc.ir.errors import BadInput

Id = Annotated[int, Field(ge=0)]
Finish = Literal["stop", "length"]


class Request(Frozen):
    """Generate up to `max_tokens` after `prompt_ids`; a token of `stop_ids` ends the answer."""

    prompt_ids: Annotated[tuple[Id, ...], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    stop_ids: tuple[Id, ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    wants_digests: bool = False  # sha256 of each step's logits: costs time
    forced_ids: tuple[Id, ...] = ()  # "drawn" in this order, whatever the logits say
    wants_times: bool = False  # stamps of every part of a decode step, even where they cost time
    logits_file: str | None = None  # where the driver appends each row of logits, float32

    @model_validator(mode="after")
    def _sampling_is_possible(self) -> Self:
        self.sampling()
        return self

    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed)


class Sampled(Frozen):
    """A token with the position it takes. A stop token is told too; `is_stop` marks it."""

    kind: Literal["sampled"] = "sampled"
    token: Id
    position: Id
    is_stop: bool = False
    logits_sha256: str | None = None


class Outcome(Frozen):
    """How a request ended. Times at the driver: from the first chunk to the first token, then
    one entry a decode step. `num_tokens` are rows in the KV of `slot`."""

    kind: Literal["outcome"] = "outcome"
    finish: Finish
    slot: Id
    num_tokens: Id
    prefill_ns: Id
    decode_ns: tuple[Id, ...]


class RankReport(Frozen):
    """What one rank has seen. Clocks and durations are of its last decode steps, in ns.

    sent and received: the host's monotonic clock as each link's send began and its receipt ended.
    is_finite: whether the output of its last segment was.
    """

    kind: Literal["report"] = "report"
    rank: Id
    is_finite: bool
    run_ns: tuple[Id, ...]
    sent: dict[Id, tuple[Id, ...]]
    received: dict[Id, tuple[Id, ...]]
    exchange_ns: tuple[Id, ...] = ()  # from its own partial rows to those of all, over a step
    kv_sha256: dict[Id, str] = {}  # by layer
    peak_bytes: Id | None = None  # the most that was held on its device, where somebody counts
    device_name: str | None = None


def check_request(request: Request, *, context: int, vocab_size: int) -> None:
    """Raises before any stage is touched: ContextExceeded, or BadInput for ids out of range."""
    if len(request.prompt_ids) >= context:
        raise ContextExceeded(len(request.prompt_ids), context)
    for token in request.prompt_ids:
        if token >= vocab_size:
            raise BadInput(f"prompt: token id {token} is not below the model's vocab_size "
                           f"{vocab_size}: is the tokenizer another model's?")  # fmt: skip
