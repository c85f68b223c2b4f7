"""What the probe needs of a kind of device, and what it is told of one device. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from plancc.executor.machine import Card
from plancc.ir.dtype import DType
from plancc.ir.topology import Device

if TYPE_CHECKING:
    import torch

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class DeclaredDevice:
    """A device before it is measured: what it may hold and how it computes."""

    name: str
    kind: str
    uuid: str | None
    total_bytes: int
    free_bytes: int
    threads: int | None
    reserve_bytes: int = 0


@dataclass(frozen=True)
class Scale:
    """How much of everything is run on a device of a kind.

    read_sizes: bytes of weights that a kernel streams, a small model's matrices up to a large
    head; a decode step walks over rotated_bytes of them, several times the largest cache. widths:
    hidden sizes of usual models whose steps a curve with knots at read_sizes is fitted to; without
    any, every read size has square matrices of its own. heads: which of them have a head too.
    prompt_width: hidden size of a usual model whose prompts are measured: of matmul_rows, multiples
    of the prompt block; and attention_chunks chunks of attention_rows, which tell what attention
    takes.
    tiny_total: weights of the layers that launches are timed with. seconds: of stepping for one
    number. batch_s: how long the device is given steps before the host waits for them, so that the
    host's own time is hidden; 0 where the host computes itself.
    """

    read_sizes: tuple[int, ...]
    rotated_bytes: int
    prompt_width: int
    matmul_rows: tuple[int, ...]
    attention_rows: int
    attention_chunks: int
    tiny_total: int
    seconds: float
    batch_s: float = 0.0
    widths: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()


class KindProbe(Protocol):
    """How devices of a kind are found, and at which scale they are measured."""

    shares_process: bool
    """Whether one process serves all devices of the kind that a host has, as in a run."""

    wire_bytes: int
    """What a process of its own takes on a device to reach those of the others; not measured."""

    def row_block(self, dtype: DType) -> int | None:
        """How many rows of a prompt products are computed by; None: by any number."""

    def cards(self, environment: Mapping[str, str]) -> tuple[Card, ...]:
        """Those that a process of this environment can open; none of a kind that has no cards."""

    def again(self, device: Device, where: str, environment: Mapping[str, str]) -> DeclaredDevice:
        """The device of a file that is measured anew. Raises BadInput where it is not here."""

    def scale(self, device: DeclaredDevice, *, is_quick: bool) -> Scale: ...

    def can_reach(self, source: "torch.device", target: "torch.device") -> bool:
        """Whether the source is said to write into the target's memory: to be proved."""


@dataclass(frozen=True)
class WorkerDevices:
    """The devices that one process of the probe stands for, all of one kind."""

    name: str
    kind: str
    devices: tuple[DeclaredDevice, ...]

    @property
    def threads(self) -> int:
        return max(device.threads or 1 for device in self.devices)

    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)


def start_request(worker: WorkerDevices, dtype: str, scales: Mapping[str, Scale]) -> dict[str, Any]:
    """What a process is told first."""
    return {
        "do": "start",
        "kind": worker.kind,
        "dtype": dtype,
        "devices": [
            {"name": one.name, "uuid": one.uuid, "threads": one.threads or 1,
             "scale": vars(scales[one.name])}
            for one in worker.devices
        ],
    }  # fmt: skip
