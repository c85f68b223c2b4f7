"""One rank: its model, its links, and the interpreter of its program.

A program is one step. The driver may have several steps under way: a younger one follows strictly
behind an older one, so every instruction is executed in the order of the steps.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import assert_never, cast

import torch

from plancc.executor.backend.api import GroupModel, RankModel
from plancc.executor.exchange import Exchanger
from plancc.executor.flight import Flight
from plancc.executor.links import Inlet, Outlet
from plancc.executor.program_points import first_recvs, runs_before_exchange
from plancc.executor.pulse import Pulse
from plancc.executor.rank_times import RankTimes
from plancc.executor.request import RankReport
from plancc.executor.seats import Seat
from plancc.executor.stamps import Stamp
from plancc.executor.step import Step
from plancc.executor.step_codec import ReportAsk
from plancc.ir.instruction import Exchange, Free, Instruction, Recv, Run, Sample, Send

OnLogits = Callable[[Step, torch.Tensor], None]
OnReport = Callable[[RankReport], None]


@dataclass
class Rank:
    """`on_logits` is called on the driver as a step is sampled, `on_report` where it is asked."""

    seat: Seat
    model: RankModel
    inlets: Mapping[int, Inlet]
    outlets: Mapping[int, Outlet]
    step_links: frozenset[int]
    kv_layers: tuple[int, ...]
    pulse: Pulse
    on_logits: OnLogits
    on_report: OnReport
    exchanger: Exchanger | None = None  # of a rank in a TP group
    waits_for: Inlet | None = None
    sampled: torch.Tensor | None = None  # the logits of the last step, at the driver
    _flights: deque[Flight] = field(default_factory=deque)
    times: RankTimes = field(default_factory=RankTimes)
    tail: Callable[[Flight], None] | None = None  # launches what is left of a decode step, as one
    output: torch.Tensor | None = None
    _begun: Step | None = None

    @property
    def num_flights(self) -> int:
        return len(self._flights)

    def submit(self, step: Step) -> None:
        """Begin a step; at the driver only, which needs no news of it."""
        self.begin(step)
        self._flights.append(Flight(step))

    def advance(self) -> bool:
        """Do what can be done without waiting; whether anything was."""
        if not self._flights and not self.seat.is_driver:
            self._flights.append(Flight(None))
        self.waits_for = None
        has_moved, limit = False, len(self.seat.program.instructions)
        for flight in list(self._flights):
            has_moved |= self.fly(flight, limit)
            if flight.at < len(self.seat.program.instructions):
                item = self.seat.program.instructions[flight.at]
                if not isinstance(item, Recv):
                    break  # its rows are in this rank's scratch: nothing may overwrite them
                limit = self._first_recv[item.link]
        while self._flights and self._flights[0].at == len(self.seat.program.instructions):
            self.land(self._flights.popleft())
        return has_moved

    def allocated_bytes(self) -> dict[str, int]:
        """Bytes held, by ledger column; both ends of a link within this process are one buffer."""
        inlets = sum(inlet.buffer_bytes for inlet in self.inlets.values())
        outlets = sum(outlet.buffer_bytes for outlet in self.outlets.values()
                      if outlet.leaves_process)  # fmt: skip
        held = self.model.allocated_bytes()
        exchanged = self.exchanger.buffer_bytes if self.exchanger else 0
        return held | {"hop_buffers": held.get("hop_buffers", 0) + inlets + outlets + exchanged}

    def report(self, ask: ReportAsk) -> None:
        """Pass the question on, and answer it."""
        for link in sorted(self.step_links & self.outlets.keys()):
            self.outlets[link].send_message(ask)
        digest = self.model.kv_digest
        layers = self.kv_layers if ask.wants_kv else ()
        self.on_report(RankReport(
            rank=self.seat.rank, is_finite=self._is_finite(), run_ns=self.times.run_ns,
            exchange_ns=self.times.exchange_ns, sent=self.times.sent_ns,
            received=self.times.received_ns, peak_bytes=self.model.peak_bytes(),
            device_name=self.model.device_name(),
            kv_sha256={layer: digest(layer, ask.slot, ask.num_tokens) for layer in layers},
        ))  # fmt: skip

    def _is_finite(self) -> bool:
        """Whether the output of the last segment was."""
        return self.output is None or bool(torch.isfinite(self.model.read(self.output)).all())

    @cached_property
    def _first_recv(self) -> dict[int, int]:
        return first_recvs(self.seat.program)

    @cached_property
    def _before_exchange(self) -> frozenset[int]:
        return runs_before_exchange(self.seat.program)

    def begin(self, step: Step) -> None:
        """Once a step. A prompt that starts at position 0 is a new tenant of its slot."""
        if step is self._begun:
            return
        self._begun = step
        if step.phase == "prompt" and step.positions[0] == 0:
            self.model.admit(step.slots[0])
            self.times.clear()
        if step.is_timed:
            self.model.set_clock()

    def fly(self, flight: Flight, limit: int) -> bool:
        start, instructions = flight.at, self.seat.program.instructions
        while flight.at < limit and self._execute(flight, instructions[flight.at]):
            flight.at += 1
            self.pulse.progress += 1
            if self.tail is not None:
                self.tail(flight)
        return flight.at > start

    def _execute(self, flight: Flight, item: Instruction) -> bool:
        """False if it cannot be done now."""
        match item:  # what comes most often first: other classes take long to be asked
            case Run():
                self._run(flight, item)
            case Exchange(layer=layer):
                return self._exchange(flight, layer)
            case Recv(link=link):
                return self._recv(flight, link)
            case Send(link=link):
                return self._send(flight, link)
            case Free(link=link):
                self.inlets[link].free()
            case Sample():
                assert flight.step is not None
                assert flight.rows is not None
                self.sampled = flight.rows
                self.on_logits(flight.step, flight.rows)
            case _:
                assert_never(item)
        return True

    def _recv(self, flight: Flight, link: int) -> bool:
        inlet = self.inlets[link]
        if link in self.step_links:
            return self._recv_step(flight, link, inlet)
        assert flight.step is not None
        inlet.expect(flight.step.num_rows)
        if not inlet.has_arrived():
            self.waits_for = self.waits_for or inlet
            return False
        flight.rows = inlet.take_rows()
        if flight.is_decode:
            self.times.mark_received((link,), self._now(flight))
        return True

    def _recv_step(self, flight: Flight, link: int, inlet: Inlet) -> bool:
        inlet.expect(0)
        while inlet.has_arrived():
            message = inlet.take_message()
            if isinstance(message, Step):
                self.begin(message)
                flight.step = message
                if flight.is_decode:
                    self.times.mark_received((link,), self._now_of_news())
                return True
            self.report(message)
            inlet.expect(0)
        self.waits_for = self.waits_for or inlet
        return False

    def _now(self, flight: Flight) -> Stamp | None:
        """None where a stamp would cost time that nobody asked to know."""
        assert flight.step is not None
        is_wanted = self.model.stamps_are_free or flight.step.is_timed
        return self.model.now() if is_wanted else None

    def _now_of_news(self) -> Stamp | None:
        """News is the host's: a device has nothing to say of when it came."""
        return self.model.now() if self.model.stamps_are_free else None

    def _run(self, flight: Flight, item: Run) -> None:
        assert flight.step is not None
        exchanger = self.exchanger
        if exchanger and flight.at in self._before_exchange:
            exchanger.expect(flight.step.num_rows)
        self.model.begin(flight.step)
        start = self._now(flight)
        flight.rows = self.output = self.model.run(item, flight.step, flight.rows)
        if exchanger:
            exchanger.release()
        flight.add_run(start, self._now(flight))

    def _exchange(self, flight: Flight, layer: int) -> bool:
        exchanger = self.exchanger
        assert exchanger is not None
        assert flight.rows is not None
        if not exchanger.is_open:
            flight.exchange_from = self._now(flight)
            if flight.is_decode:
                self.times.mark_sent(exchanger.outlets, flight.exchange_from)
        is_done, late = exchanger.go_on(flight.rows)
        if not is_done:
            self.waits_for = late or self.waits_for  # its group is at work on this very step
            return False
        parts = exchanger.parts(flight.rows)
        end = self._now(flight)
        flight.add_exchange(end)
        if flight.is_decode:
            self.times.mark_received(exchanger.inlets, end)
        flight.rows = None
        if exchanger.group.holds_rows:
            flight.rows = cast(GroupModel, self.model).take(layer, parts)
        return True

    def _send(self, flight: Flight, link: int) -> bool:
        assert flight.step is not None
        outlet = self.outlets[link]
        if not outlet.can_send():
            return False
        is_news = link in self.step_links
        if flight.is_decode:
            self.times.mark_sent((link,), self._now_of_news() if is_news else self._now(flight))
        if is_news:
            outlet.send_message(flight.step)
            return True
        assert flight.rows is not None
        outlet.send_rows(self.model.read(flight.rows) if outlet.leaves_process else flight.rows)
        return True

    def land(self, flight: Flight) -> None:
        if flight.is_decode:
            self.times.add(flight.runs, flight.exchanges)
