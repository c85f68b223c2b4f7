"""Both ends of the plan's links that touch this process, with their buffers."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from plancc.executor.backend.api import Link, Wire
from plancc.executor.comm import GlooInlet, GlooOutlet, Group, RowSlots, WatchedInlet
from plancc.executor.exchange import DirectOutlet, Exchanger
from plancc.executor.links import Inlet, LocalLink, Outlet
from plancc.executor.seats import Seat, seats_of, steps_in_flight
from plancc.executor.step_codec import body_words_of
from plancc.executor.wires import WirePlan, flow_of, wires_of
from plancc.ir.plan import Plan, PlanLink
from plancc.ir.sizes import step_rows

if TYPE_CHECKING:
    from plancc.executor.opening import OpenSeat


class LinkEnds:
    """`mine` are the ranks of this process; `group` is None where no link leaves it."""

    def __init__(
        self,
        plan: Plan,
        mine: Mapping[int, "OpenSeat"],
        group: Group | None,
        news: threading.Event,
    ) -> None:
        self._plan, self._mine, self._group, self._news = plan, mine, group, news
        self._seats = seats_of(plan)
        order = {worker.name: index for index, worker in enumerate(plan.runtime.workers)}
        self._home = {seat.rank: order[seat.worker] for seat in self._seats}
        self._max_rows = step_rows(plan.runtime.slots, plan.runtime.prefill_chunk)
        self._row_slots: dict[tuple[int, int], RowSlots] = {}
        self._local = {
            index: self._local_link(link)
            for index, link in enumerate(plan.links)
            if {link.from_, link.to} <= mine.keys()
        }
        self._wires: dict[int, tuple[Wire, WirePlan]] = {}
        for wire in wires_of(plan):
            self._open(wire)

    def _open(self, wire: WirePlan) -> None:
        """The wire's end of a rank of this process, if one is of it."""
        for rank in self._mine.keys() & set(wire.ranks):
            assert not set(wire.links) & self._wires.keys(), "a wire's ranks are a process each"
            assert self._group is not None, "a wire leaves the process"
            opened = self._mine[rank].backend.wire(
                self._mine[rank].model, store=self._group.store, name=wire.name,
                place=wire.ranks.index(rank), size=len(wire.ranks),
                sources=wire.sources(self._plan, rank), targets=wire.targets(self._plan, rank),
            )  # fmt: skip
            self._wires |= {link: (opened, wire) for link in wire.links}

    @property
    def row_links(self) -> tuple[Link, ...]:
        """Links of rows within this process."""
        return tuple(link for index, link in self._local.items()
                     if self._plan.links[index].payload != "step")  # fmt: skip

    def _local_link(self, link: PlanLink) -> Link:
        """Rows go as the kind of device does it; news of steps are handed on as they are."""
        if link.payload == "step":
            return LocalLink(None, self._slots(link))
        source, target = self._mine[link.from_], self._mine[link.to]
        shape, dtype = self._rows_of(link)
        return source.backend.link(
            source.model, target.model, shape=shape, dtype=dtype,
            is_staged=link.transport == "staged",
            in_place=flow_of(self._seats, link) != "rows",
        )  # fmt: skip

    def inlets(self, rank: int) -> Mapping[int, Inlet]:
        """By link; those of partial rows are the exchanger's."""
        return {index: self._inlet(index, link) for index, link in enumerate(self._plan.links)
                if link.to == rank and link.payload != "partial"}  # fmt: skip

    def outlets(self, rank: int) -> Mapping[int, Outlet]:
        return {index: self._outlet(index, link) for index, link in enumerate(self._plan.links)
                if link.from_ == rank and link.payload != "partial"}  # fmt: skip

    def exchanger(self, seat: Seat) -> Exchanger | None:
        """None for a rank that is a stage by itself."""
        if seat.group is None:
            return None
        links = [row for row in enumerate(self._plan.links) if row[1].payload == "partial"]
        first = seat.rank - seat.group.number
        return Exchanger(
            seat.group,
            inlets={i: self._inlet(i, link) for i, link in links if link.to == seat.rank},
            outlets={i: self._outlet(i, link) for i, link in links if link.from_ == seat.rank},
            places={i: link.from_ - first for i, link in links},
        )

    def _inlet(self, index: int, link: PlanLink) -> Inlet:
        if index in self._local:
            return self._local[index]
        if index in self._wires:
            wire, where = self._wires[index]
            shape, dtype = self._rows_of(link)
            return wire.inlet(where.ranks.index(link.from_), flow_of(self._seats, link),
                              shape=shape, dtype=dtype)  # fmt: skip
        assert self._group is not None
        inlet = GlooInlet(
            self._group, self._home[link.from_], index, self._slots(link), self._rows(link),
            self._body(link),
        )  # fmt: skip
        return inlet if len(self._mine) == 1 else WatchedInlet(inlet, self._news)

    def _outlet(self, index: int, link: PlanLink) -> Outlet:
        if index in self._local:
            return self._local[index]
        if index in self._wires:
            wire, where = self._wires[index]
            return wire.outlet(where.ranks.index(link.to), flow_of(self._seats, link))
        assert self._group is not None
        peer = self._home[link.to]
        if link.payload != "step" and flow_of(self._seats, link) != "rows":
            return DirectOutlet(self._group, peer, index)
        return GlooOutlet(self._group, peer, index, self._slots(link), self._shared_rows(link),
                          self._body(link))  # fmt: skip

    def _shared_rows(self, link: PlanLink) -> RowSlots | None:
        """Rows that leave for several ranks of a stage leave from one buffer."""
        key = (link.from_, self._seats[link.to].stage)
        if key not in self._row_slots and (rows := self._rows(link)) is not None:
            self._row_slots[key] = RowSlots(rows)
        return self._row_slots[key] if link.payload != "step" else None

    def _rows(self, link: PlanLink) -> torch.Tensor | None:
        """Zeros, so that the pages are there before the first step."""
        if link.payload == "step":
            return None
        shape, dtype = self._rows_of(link)
        return torch.zeros(shape, dtype=dtype)

    def _rows_of(self, link: PlanLink) -> tuple[tuple[int, ...], torch.dtype]:
        hidden = self._plan.model.hidden_size
        shape: tuple[int, ...] = (link.slots, self._max_rows, hidden)
        dtype = getattr(torch, self._plan.runtime.dtype)
        if link.payload == "partial":
            dtype = torch.float32
            roots = link.bytes_per_row // (hidden * dtype.itemsize)
            shape = (link.slots, self._max_rows, roots, hidden)
        return shape, dtype

    def _slots(self, link: PlanLink) -> int:
        """Steps are a few bytes: one for each that may be under way."""
        return (
            max(link.slots, steps_in_flight(self._plan)) if link.payload == "step" else link.slots
        )

    def _body(self, link: PlanLink) -> int:
        return body_words_of(self._max_rows, self._max_rows) if link.payload == "step" else 0
