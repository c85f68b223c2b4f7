"""All workers of a run, watched: whoever is lost in whatever phase ends the run, and everyone else.

    with Fleet(plan, path, weights) as fleet:    one process for each worker
        messages = fleet.poll(0.1)               or RunFailed: who was lost, and in which phase

Leaving the block ends every process. No torch is imported here.
"""

import os
import secrets
import selectors
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from plancc.executor.admission import Admission
from plancc.executor.backends import BACKENDS
from plancc.executor.control import SECRET_BYTES, Control, Doorway
from plancc.executor.failures import Closed
from plancc.executor.member import Member, all_wait, error_of, silence_limit_s
from plancc.executor.messages import Beat, End, Failed, Hello, Message
from plancc.executor.seats import driver_seat, seats_of
from plancc.executor.spawn import spawn
from plancc.executor.weights import Weights
from plancc.executor.worker import Order
from plancc.ir.errors import RunFailed
from plancc.ir.plan import Plan, Worker

_END_S = 2.0  # what a process gets to end by itself
_BUSY = ("join", "prefill", "decode")


class Fleet:
    """The launcher's side of every control connection. Set `phase`: every failure says it."""

    def __init__(
        self,
        plan: Plan,
        plan_path: Path,
        weights: Weights,
        backends: Mapping[str, str] = BACKENDS,
    ) -> None:
        self.plan, self.phase = plan, "connect"
        self.members: list[Member] = []
        self.logs: dict[str, str] = {}  # what each worker wrote, once it has ended
        self._plan_path, self._weights, self._backends = plan_path, weights, backends
        self._admission = Admission(plan, weights)
        self._timeouts = plan.runtime.timeouts
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._doorway: Doorway | None = None
        self._strangers: list[Control] = []

    def __enter__(self) -> Self:
        hosts = {row.name: row.address for row in self.plan.runtime.hosts}
        address = hosts[driver_seat(self.plan).host]
        try:
            self._doorway = Doorway(address, self._secret)
            for worker in self.plan.runtime.workers:
                self.members.append(self._start(worker, address, self._doorway.port))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def driver(self) -> Member:
        return next(m for m in self.members if m.worker.name == driver_seat(self.plan).worker)

    @property
    def all_admitted(self) -> bool:
        return all(member.control is not None for member in self.members)

    def send(self, member: Member, message: Message) -> None:
        assert member.control is not None
        with suppress(Closed):  # the watch says who is gone, and in which phase
            member.control.send(message)

    def poll(self, timeout_s: float) -> list[tuple[Member, Message]]:
        """Messages but for heartbeats, waiting up to `timeout_s` for the first.

        Raises RunFailed when a worker is lost, stuck, or says that it cannot go on; Stale when
        one is of another run.
        """
        self._greet()
        messages = self._receive(timeout_s)
        self._watch()
        for member, message in messages:
            if isinstance(message, Failed) and message.non_finite_position is None:
                if message.is_broken_link:
                    self._blame()
                raise error_of(member, message)
        return messages

    def _start(self, worker: Worker, address: str, port: int) -> Member:
        order = Order(
            worker=worker.name,
            plan=str(self._plan_path.absolute()),
            weights=str(self._weights.folder.absolute()),
            weights_sha256=self._weights.sha256,
            address=address,
            port=port,
            secret=self._secret.hex(),
            parent=os.getpid(),
            backends=dict(self._backends),
        )
        ranks = tuple(seat.rank for seat in seats_of(self.plan) if seat.worker == worker.name)
        process = spawn(order, worker.threads or 1)
        return Member(worker, ranks, process, time.monotonic(), pid=process.popen.pid)

    def _greet(self) -> None:
        """Read the hello of whoever passed the challenge, and answer it."""
        assert self._doorway is not None
        self._strangers += self._doorway.arrivals()
        for control in [control for control in self._strangers if control.has_message()]:
            self._strangers.remove(control)
            try:
                hello = control.receive()
            except RunFailed:
                control.close()
                continue
            if isinstance(hello, Hello):
                self._admission.answer(control, hello, self.members)

    def _receive(self, timeout_s: float) -> list[tuple[Member, Message]]:
        messages: list[tuple[Member, Message]] = []
        for member in self._readable(timeout_s):
            assert member.control is not None
            try:
                while member.control.has_message():
                    message = member.control.receive()
                    member.last_seen = time.monotonic()
                    if isinstance(message, Beat):
                        member.hear(message)
                    else:
                        messages.append((member, message))
            except Closed:
                member.is_closed = True
        return messages

    def _readable(self, timeout_s: float) -> list[Member]:
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                if member.control is not None and not member.is_closed:
                    selector.register(member.control.fileno(), selectors.EVENT_READ, member)
            if not selector.get_map():
                time.sleep(timeout_s)
                return []
            return [key.data for key, _ in selector.select(timeout_s)]

    def _watch(self) -> None:
        now = time.monotonic()
        for member in self.members:
            if reason := member.loss(now, self._timeouts):
                raise RunFailed(f"{member.name} was lost in {self.phase}: {reason}")
        if self.phase in _BUSY and all_wait(self.members, now, self._timeouts):
            raise RunFailed(f"no progress in {self.phase} for {self._timeouts.step_s:g} s: every "
                            f"worker waits for another")  # fmt: skip

    def _blame(self) -> None:
        """A link broke: wait for the death that broke it. Raises RunFailed naming who died."""
        deadline = time.monotonic() + silence_limit_s(self._timeouts)
        while time.monotonic() < deadline:
            self._receive(0.05)
            self._watch()

    def _end(self) -> None:
        """End every process, by word and then by force, and keep what each wrote."""
        for member in self.members:
            if member.control is not None:
                self.send(member, End())
        deadline = time.monotonic() + _END_S
        for member in self.members:
            grace_s = deadline - time.monotonic() if member.control else 0.0
            self.logs[member.worker.name] = member.process.end(grace_s)
            if member.control is not None:
                member.control.close()
        for control in self._strangers:
            control.close()
        if self._doorway is not None:
            self._doorway.close()
