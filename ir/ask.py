"""What was asked of the compiler: flags with their defaults, all recorded in the plan."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from plancc.ir.document import Frozen
from plancc.ir.dtype import DType
from plancc.ir.layers import Count

Objective = Literal["latency", "throughput", "prefill", "context", "workload"]
"""`workload` is chosen by stating one, never by name."""


class Workload(Frozen):
    """A stated mix of work: prompt and output tokens of a request, requests at a time.

    To state one makes what such a request takes the objective.
    """

    prompt: Count
    output: Count
    streams: Count = 1

    def __str__(self) -> str:
        """As one would ask for it: 'prompt=2000,output=500,streams=4'."""
        return f"prompt={self.prompt},output={self.output},streams={self.streams}"

    @property
    def words(self) -> str:
        """'a request of 2000 + 500 tokens, 4 at once'"""
        together = f", {self.streams} at once" if self.streams > 1 else ""
        return f"a request of {self.prompt} + {self.output} tokens{together}"


class Ask(Frozen):
    """None means: not said, so the compiler fills in the default that it then records."""

    context: Count | None = None  # tokens a slot; default min(max_context, 8192)
    slots: Count = 1  # default: the workload's streams
    prefill_chunk: Count = 512
    prompt: Count | None = (
        None  # tokens, for prefill time; default the workload's, or min(4096, context)
    )
    objective: Objective = "latency"
    workload: Workload | None = None
    kv_dtype: DType | None = None  # default: the model's
    devices: tuple[str, ...] | None = None  # restricts and orders; a device may repeat
    max_devices: Count | None = None
    stage_layers: tuple[Count, ...] | None = None
    tp: Literal["auto", "off"] | Annotated[int, Field(ge=1)] = "auto"
    pin: dict[str, str] = {}  # block -> device
    head: Literal["first", "last", "auto"] = "auto"
    without: tuple[str, ...] = ()  # blocks left out
    workers: Literal["host", "device"] = "host"
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.03
    accept_gap: bool = False

    def filled(self, max_context: int, dtype: DType) -> Self:
        """This ask with the model's defaults in place of what was not said."""
        context = self.context or min(max_context, 8192)
        stated = self.workload.prompt if self.workload else None
        return self.model_copy(
            update={
                "context": context,
                "prompt": self.prompt or stated or min(4096, context),
                "kv_dtype": self.kv_dtype or dtype,
            }
        )

    @model_validator(mode="before")
    @classmethod
    def _workload_is_an_objective(cls, data: Any) -> Any:
        """A workload takes the place of the default objective, and of the default slots."""
        workload = data.get("workload") if isinstance(data, Mapping) else None
        if workload is None:
            return data
        values = dict(data)
        if values.get("objective", "latency") == "latency":
            values["objective"] = "workload"
        if "slots" not in values:
            values["slots"] = _streams(workload)
        return values

    @model_validator(mode="after")
    def _workload_has_its_slots(self) -> Self:
        if self.workload is None:
            if self.objective == "workload":
                raise ValueError("--objective workload: state one by --workload instead")
            return self
        if self.objective != "workload":
            raise ValueError(f"--objective {self.objective}: --workload is an objective itself")
        if self.slots < self.workload.streams:
            raise ValueError(f"--slots {self.slots}: --workload states {self.workload.streams} "
                             f"streams, and each needs a slot")  # fmt: skip
        return self

    @model_validator(mode="after")
    def _devices_are_said_once(self) -> Self:
        if self.devices is not None and not self.devices:
            raise ValueError("devices: expected at least one name, found none")
        return self


def _streams(workload: Any) -> int:
    """Of what was said, checked or not yet; 1 where it is no number of streams."""
    said = workload.get("streams", 1) if isinstance(workload, Mapping) else workload
    streams = said.streams if isinstance(said, Workload) else said
    return streams if isinstance(streams, int) and streams > 0 else 1
