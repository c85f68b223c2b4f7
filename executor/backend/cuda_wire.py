"""Wires on cards: rows between ranks of several processes, in the order of each rank's stream.

A rank's stream sends rows from where they lie, and receives them into a slot, as one of its
launches: nothing waits on the host, what comes behind on the stream waits on the device, and so no
slot and no row needs an event. A send ends when its receiver has the rows. So ranks meet: that ends
for every plan, since each rank sends and takes in the order of its program, step by step, and
programs in which ranks meet are sound (tests/executor/test_wires.py walks them).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from plancc.executor.backend.cuda_nccl import NcclSwap
from plancc.executor.row_views import RowViews
from plancc.executor.step_codec import Message
from plancc.executor.wires import Flow
from plancc.ir.errors import RunFailed

if TYPE_CHECKING:
    from plancc.executor.backend.cuda import CudaRank

Tensor = torch.Tensor
_CHECKED_BYTES = 2**20


class Swap(Protocol):
    """One transfer of a group, all its sends and receipts at once."""

    def __call__(self, sent: list[Tensor], taken: list[Tensor]) -> None:
        """By place: contiguous rows for whoever is there, and room for theirs; empty where nothing
        goes. In the order of the current stream. Raises LinkBroken."""


class CudaWires:
    """The part of a Backend that is about ranks of other processes."""

    def wire(
        self, model: Any, *, store: Any, name: str, place: int, size: int,
        sources: Sequence[int], targets: Sequence[int],
    ) -> "CudaWire":  # fmt: skip
        if model.device.type == "cuda":
            torch.cuda.set_device(model.device)  # or NCCL's first look would be at another
        wire = CudaWire(model, self._swap(store, name, place, size), size)
        wire.check(place, sources, targets)
        return wire

    def _swap(self, store: Any, name: str, place: int, size: int) -> Swap:
        return NcclSwap(store, name, place, size)


class CudaWire:
    """A rank's end of a wire. Ends of partial rows belong to one exchange: what is sent and what
    is taken go at once, with the last outlet, or with the first inlet where there is no outlet."""

    def __init__(self, rank: "CudaRank", swap: Swap, size: int) -> None:
        self._rank, self._swap, self._size = rank, swap, size
        self._nothing = torch.empty(0, dtype=torch.uint8, device=rank.device)
        self.exchange = _Exchange(self)

    def outlet(self, place: int, flow: Flow) -> "WireOutlet":
        if flow == "partial":
            self.exchange.num_outlets += 1
        return WireOutlet(self, place, flow)

    def inlet(
        self, place: int, flow: Flow, *, shape: tuple[int, ...], dtype: torch.dtype
    ) -> "WireInlet":
        """shape: [slots, rows, ...]"""
        rows = torch.zeros(shape, dtype=dtype, device=self._rank.device)
        if rows.is_cuda:
            torch.cuda.synchronize(rows.device)  # slots were zeroed on another stream
        inlet = WireInlet(self, place, flow, RowViews(rows))
        if flow == "partial":
            self.exchange.inlets.append(inlet)
        return inlet

    def move(self, sent: dict[int, Tensor], taken: dict[int, Tensor]) -> None:
        """Rows to places, and rows from places into the tensors given."""
        places, nothing = range(self._size), self._nothing
        with self._rank.on_stream():
            self._swap([sent.get(place, nothing) for place in places],
                       [taken.get(place, nothing) for place in places])  # fmt: skip

    def normed_rows(self, num_rows: int) -> int:
        """Rows of an owner's message in a step of so many."""
        exchange = self._rank.exchange
        assert exchange is not None, "normed rows travel in a TP group"
        return exchange.normed_rows(num_rows)

    def check(self, own: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Open the ways, and see that what is sent arrives. Raises RunFailed where it does not."""
        numbers = {place: self._numbers(place) for place in {own, *sources}}
        taken = {place: torch.zeros_like(numbers[place]) for place in sources}
        self._settle()
        self.move(dict.fromkeys(targets, numbers[own]), taken)
        self._settle()
        for place in sources:
            if not torch.equal(taken[place], numbers[place]):
                raise RunFailed(f"{self._rank.device}: what rank {place} of its wire sends does "
                                f"not arrive: compile with --workers host")  # fmt: skip

    def _numbers(self, place: int) -> Tensor:
        numbers = torch.arange(_CHECKED_BYTES // 4, dtype=torch.int32, device=self._rank.device)
        return numbers * (2 * place + 3)

    def _settle(self) -> None:
        if self._rank.device.type == "cuda":
            torch.cuda.synchronize(self._rank.device)


class _Exchange:
    """The ends of a wire whose rows go at once."""

    def __init__(self, wire: CudaWire) -> None:
        self._wire = wire
        self.num_outlets, self.inlets = 0, list[WireInlet]()
        self._sent: dict[int, Tensor] = {}
        self._here: set[int] = set()  # places whose rows have been asked for and not taken

    def put(self, place: int, rows: Tensor) -> None:
        self._sent[place] = rows
        if len(self._sent) == self.num_outlets:
            self._go()

    def bring(self, place: int) -> None:
        if place not in self._here:
            assert not self.num_outlets, "rows are taken once all have been sent"
            self._go()
        self._here.remove(place)

    def _go(self) -> None:
        assert not self._here, "an exchange ends before the next one"
        sent, self._sent = self._sent, {}
        self._wire.move(sent, {inlet.place: inlet.room() for inlet in self.inlets})
        self._here = {inlet.place for inlet in self.inlets}


class WireOutlet:
    """Rows leave from where they lie on the device."""

    buffer_bytes = 0
    leaves_process = False  # not by memory of the host

    def __init__(self, wire: CudaWire, place: int, flow: Flow) -> None:
        self._wire, self._place, self._flow = wire, place, flow

    def can_send(self) -> bool:
        return True

    def send_rows(self, rows: Tensor) -> None:
        if self._flow == "partial":
            self._wire.exchange.put(self._place, rows)
        else:
            self._wire.move({self._place: rows}, {})

    def send_message(self, message: Message) -> None:
        raise AssertionError(f"a wire carries rows, not {message}")


class WireInlet:
    """Rows arrive in slots, by turns: a receipt is launched when its rows are taken."""

    def __init__(self, wire: CudaWire, place: int, flow: Flow, slots: RowViews) -> None:
        self._wire, self.place, self._flow, self._slots = wire, place, flow, slots
        self.buffer_bytes = slots.buffer.nbytes
        self._num_rows, self._taken, self._freed = 0, 0, 0

    def expect(self, num_rows: int) -> None:
        is_normed = self._flow == "normed"
        self._num_rows = self._wire.normed_rows(num_rows) if is_normed else num_rows

    def has_arrived(self) -> bool:
        """As far as the host is concerned."""
        return True

    def wait(self) -> None:
        raise AssertionError("a wire is never waited for")

    def room(self) -> Tensor:
        """Where the next rows go."""
        assert self._taken - self._freed < len(self._slots), "every slot is held"
        return self._slots.at(self._taken % len(self._slots), self._num_rows)

    def take_rows(self) -> Tensor:
        rows = self.room()
        if self._flow == "partial":
            self._wire.exchange.bring(self.place)
        else:
            self._wire.move({}, {self.place: rows})
        self._taken += 1
        return rows

    def take_message(self) -> Message:
        raise AssertionError("a wire carries rows")

    def free(self) -> None:
        assert self._freed < self._taken, "a slot is freed once, after it was taken"
        self._freed += 1
