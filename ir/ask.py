"""What was asked of the compiler: flags with their defaults, all recorded in the plan."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plancc.ir.document import Frozen
from plancc.ir.dtype import DType
from plancc.ir.layers import Count

Objective = Literal["latency", "throughput", "prefill", "context"]


class Workload(Frozen):
    """A stated mix of work: prompt and output tokens of a request, requests at a time."""

    prompt: Count
    output: Count
    streams: Count = 1


class Ask(Frozen):
    """None means: not said, so the compiler fills in the default that it then records."""

    context: Count | None = None  # tokens a slot; default min(max_context, 8192)
    slots: Count = 1
    prefill_chunk: Count = 512
    prompt: Count | None = None  # tokens, for prefill time; default min(4096, context)
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
        return self.model_copy(
            update={
                "context": context,
                "prompt": self.prompt or min(4096, context),
                "kv_dtype": self.kv_dtype or dtype,
            }
        )

    @model_validator(mode="after")
    def _devices_are_said_once(self) -> Self:
        if self.devices is not None and not self.devices:
            raise ValueError("devices: expected at least one name, found none")
        return self
