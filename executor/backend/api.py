"""What the executor needs of a kind of device. One module here implements it for each kind.

A device works through what it was given in order, and may still be at it when a call returns: the
host waits only in `read`, `wait`, `Drawn.ids` and a stamp's `ns`.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch

from plancc.executor.group import Group
from plancc.executor.links import Inlet, Outlet
from plancc.executor.stamps import Stamp
from plancc.executor.step import Drawn, Step
from plancc.executor.wires import Flow
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tensors import TensorPiece


class RankModel(Protocol):
    """Weights, KV and scratch of one rank, allocated once when opened; no step allocates more."""

    stamps_are_free: bool  # else they are taken where a step is timed

    def pieces(self) -> tuple[TensorPiece, ...]:
        """What must be written before the first step, in load order."""

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        """A view on the device, of the piece's shape and the model's dtype, for the loader to fill.

        Fused matrices (q, k and v; gate and up) are views into one buffer.
        """

    def begin(self, step: Step) -> None:
        """Take a step's tokens, positions and pages, before its first segment. A second call for
        the same step does nothing."""

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        """Run one segment of the step begun last.

        hidden: [rows, hidden_size] from Recv or from this rank's last segment, None where the
        segment embeds. Returns rows of the same shape; or fp32 logits [1 or rows, vocab_size]
        where the segment has the head and the step wants them ([0, vocab_size] where not).
        """

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows that `run` returned, on the host; good until the next `run` or `read`."""

    def draw(self, logits: torch.Tensor) -> Drawn | None:
        """The largest logit of each row that `run` returned, as the tokens of a next step; None
        where the device does not draw, and the host has to."""

    def now(self) -> Stamp:
        """When all that was begun so far is done."""

    def wait(self) -> None:
        """Return when all that was begun is done."""

    def set_clock(self) -> None:
        """Waits; stamps of the next second or so are told by the host's clock as it is now."""

    def admit(self, slot: int) -> None:
        """Forget all state of a slot before its first chunk."""

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        """sha256 of the layer's K rows, then V rows, of positions [0, num_tokens) (or the last
        ones a window keeps), in position order: independent of pages."""

    def peak_bytes(self) -> int | None:
        """The most that was held on the rank's device; None where nobody counts."""

    def device_name(self) -> str | None:
        """What its maker calls the device."""

    def allocated_bytes(self) -> dict[str, int]:
        """Bytes held, by ledger column: weights, kv, blocks, workspace; and hop_buffers for what
        the rank of a group exchanges."""


class GroupModel(RankModel, Protocol):
    """A rank of a TP group. Its `run` differs so:

    A segment with a layer ends with that layer's partial rows: float32 [rows, roots, hidden_size],
    one for each maximal subtree of the rank's tiles, in tile order. They stay as they are until
    the second segment after that ends so. With part `mixer` it ends with the layer's normed rows
    [rows, hidden_size] instead, and part `mlp` begins with such rows.
    """

    def take(self, layer: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Every rank's partial rows, in rank order, for the next `run` to add to the residual.

        They are read then, in the order of the tile tree. Returns the rows to give to that run.
        """


class Link(Inlet, Outlet, Protocol):
    """Both ends of a link within a process."""

    def forget(self) -> None:
        """Everything that was sent has been received, and done with."""


class Wire(Protocol):
    """A rank's end of a way to ranks of other processes, for rows that stay on devices.

    Places number the ranks of a wire. Whoever sends or takes has it launched, and goes on: the
    device does it in that order, and where it must wait for a peer, nothing behind it begins.
    """

    def outlet(self, place: int, flow: Flow) -> Outlet: ...

    def inlet(self, place: int, flow: Flow, *, shape: tuple[int, ...], dtype: torch.dtype) -> Inlet:
        """shape: [slots, rows, ...]. Partial rows are launched with all of an exchange at once."""


class Recorder(Protocol):
    """Steps of all ranks of a process, or what one rank does of them, launched as one."""

    def key(self, step: Step) -> Hashable:
        """Steps of one key have the same launches: as many rows, and reaching about as far; of a
        prompt, about as many rows."""

    def run(self, step: Step, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The result of a step that every rank has begun: what `launch` returns.

        Launches of a former step of its key are repeated instead. Else `launch` is called twice,
        and the stamps of the second time are told anew by every repetition; once for a chunk of a
        prompt whose key was not met before.
        """


class Backend(Protocol):
    def open(
        self,
        *,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        threads: int,
        uuid: str | None = None,
        group: Group | None = None,
    ) -> RankModel:
        """Allocate a rank of the plan on a device of this kind; a GroupModel where it has a group.

        `uuid` says which device. `group` is not passed for a rank that is a stage by itself.
        """

    def link(
        self,
        source: RankModel,
        target: RankModel,
        *,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        is_staged: bool,
        in_place: bool,
    ) -> Link:
        """A link of rows between two ranks of this process.

        shape: [slots, rows, ...]. is_staged: through memory of the host, for devices that cannot
        reach each other's. in_place: the sender leaves rows alone until it has an answer, so they
        need not be copied where the target can read them.
        """

    def wire(
        self, model: RankModel, *, store: Any, name: str, place: int, size: int,
        sources: Sequence[int], targets: Sequence[int],
    ) -> Wire:  # fmt: skip
        """Meet the wire's other ranks at a torch.distributed store, and open the ways from the
        places `sources` and to `targets`. Raises RunFailed where what is sent does not arrive."""

    def recorder(self, models: Sequence[RankModel], links: Sequence[Link]) -> Recorder | None:
        """For ranks whose rows all stay on devices, and go among them by the links or to others by
        wires; None where nothing is won by one."""
