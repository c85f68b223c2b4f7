"""A worker once it is admitted: load, join the others, run steps. Imports torch."""

import queue
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from plancc.executor.comm import Group, open_store
from plancc.executor.control import Control
from plancc.executor.engine import Engine
from plancc.executor.failures import LinkBroken, NonFinite
from plancc.executor.messages import (
    Admitted,
    Failed,
    Gather,
    Gathered,
    Generate,
    Join,
    Loaded,
    Message,
    Ready,
    Report,
)  # fmt: skip
from plancc.executor.opening import OpenSeat, link_up, open_models
from plancc.executor.pulse import Pulse
from plancc.executor.ranks import LocalRanks
from plancc.executor.seats import Seat, seats_of, worker_named
from plancc.executor.step_codec import ReportAsk
from plancc.executor.weight_loader import RangeReader, load_rank
from plancc.executor.weights import pieces_of
from plancc.executor.wires import wires_of
from plancc.ir.plan import Plan


@dataclass
class WorkerRun:
    plan: Plan
    worker: str
    folder: Path
    backends: Mapping[str, str]
    control: Control
    inbox: "queue.SimpleQueue[Message]"
    pulse: Pulse

    def run(self, admitted: Admitted) -> NoReturn:
        """Serve until the process is ended; raises what cannot be gone on with."""
        torch.set_num_threads(worker_named(self.plan, self.worker).threads or 1)
        torch.set_grad_enabled(False)
        seats = tuple(seat for seat in seats_of(self.plan) if seat.worker == self.worker)
        opened = self._load(seats, admitted)
        group = self._join()
        engine = Engine(self.plan) if any(seat.is_driver for seat in seats) else None
        ranks = link_up(
            self.plan,
            opened,
            group,
            self.pulse,
            on_logits=engine.on_logits if engine else _no_logits,
            on_report=self.control.send,
        )
        self.pulse.phase = "idle"
        self.control.send(Ready(allocated=ranks.allocated_bytes()))
        try:
            if engine is None:
                self._follow(ranks)
            engine.attach(ranks)
            self._drive(engine)
        except torch.AcceleratorError as error:
            if not wires_of(self.plan):
                raise
            traceback.print_exc()  # it may be our own bug; most likely a peer's memory is gone
            raise LinkBroken(str(error).splitlines()[0]) from None

    def _load(self, seats: tuple[Seat, ...], admitted: Admitted) -> tuple[OpenSeat, ...]:
        self.pulse.phase = "load"
        start = time.monotonic_ns()
        opened = open_models(self.plan, seats, self.backends)
        begin = time.monotonic_ns()
        entries = {entry.name: entry for entry in admitted.entries}
        with RangeReader(self.folder, self._progress) as reader:
            for item in opened:
                needed = pieces_of(self.plan, item.seat)
                load_rank(item.model, needed, entries, reader, admitted.fingerprint)
        self.control.send(
            Loaded(
                bytes_read=reader.bytes_read,
                open_ns=begin - start,
                load_ns=time.monotonic_ns() - begin,
            )
        )
        return opened

    def _progress(self, num_bytes: int) -> None:
        self.pulse.progress += num_bytes

    def _join(self) -> Group | None:
        self.pulse.phase = "join"
        names = [worker.name for worker in self.plan.runtime.workers]
        store = None
        while True:
            with self.pulse.waiting():
                message = self.inbox.get()
            if isinstance(message, Gather):
                store = open_store(message.address)
                self.control.send(Gathered(port=store.port))
                continue
            assert isinstance(message, Join)
            if message.address is None or message.port is None:
                return None
            meeting = store or open_store(message.address, message.port)
            return Group(meeting, names.index(self.worker), len(names), self._address())

    def _address(self) -> str:
        host = worker_named(self.plan, self.worker).host
        return next(row.address for row in self.plan.runtime.hosts if row.name == host)

    def _follow(self, ranks: LocalRanks) -> NoReturn:
        """Run steps as the driver's news of them comes."""
        while True:
            if not ranks.advance():
                ranks.wait()

    def _drive(self, engine: Engine) -> NoReturn:
        """Answer requests, one after the other."""
        while True:
            self.pulse.phase = "idle"
            with self.pulse.waiting():
                message = self.inbox.get()
            match message:
                case Generate():
                    self._generate(engine, message)
                case Report(slot=slot, num_tokens=num_tokens, wants_kv=wants_kv):
                    engine.ask_reports(ReportAsk(slot, num_tokens, wants_kv))
                case _:
                    raise AssertionError(f"a driver is not told {message.kind}")

    def _generate(self, engine: Engine, message: Generate) -> None:
        self.pulse.phase = "prefill"
        try:
            for item in engine.generate(message.request):
                self.pulse.phase = "decode"
                self.control.send(item)
        except NonFinite as error:  # the stages are sound and can still say whose rows were not
            self._tell_non_finite(error)

    def _tell_non_finite(self, error: NonFinite) -> None:
        self.control.send(
            Failed(
                exit_code=error.exit_code,
                text=str(error),
                phase=self.pulse.phase,
                non_finite_position=error.position,
            )
        )


def _no_logits(step: object, logits: torch.Tensor) -> None:
    raise AssertionError("only the driver samples")
