"""Who is let into a run: the launcher's answer to a worker's hello."""

import time
from contextlib import suppress
from dataclasses import dataclass

from plancc.executor.control import Control
from plancc.executor.failures import Closed
from plancc.executor.member import Member
from plancc.executor.messages import (
    PROTOCOL,
    Admitted,
    Hello,
    Identity,
    Refused,
    identity_problems,
)
from plancc.executor.seats import seats_of
from plancc.executor.weights import Weights, pieces_of
from plancc.ir.errors import Stale
from plancc.ir.plan import Plan
from plancc.ir.version import VERSION
from plancc.ir.weight_index import TensorEntry


@dataclass(frozen=True)
class Admission:
    """Lets in each worker of the plan once, if build, plan and weights are the same."""

    plan: Plan
    weights: Weights

    @property
    def identity(self) -> Identity:
        return Identity(
            protocol=PROTOCOL, plancc=VERSION, plan=self.plan.digest, weights=self.weights.sha256
        )

    def answer(self, control: Control, hello: Hello, members: list[Member]) -> None:
        """Admit or refuse. Raises Stale with every difference, both values and the host."""
        absent = {member.worker.name: member for member in members if member.control is None}
        who = f"worker {hello.worker} on host {hello.host}"
        problems = identity_problems(self.identity, hello.identity, who)
        if hello.worker not in absent:
            expected = ", ".join(sorted(absent)) or "none"
            problems += (f"worker: expected one of {expected}, found {hello.worker}",)
        if problems:
            with suppress(Closed):
                control.send(Refused(problems=problems))
            raise Stale(problems)
        member = absent[hello.worker]
        member.control, member.pid = control, hello.pid
        member.last_seen = member.moved_at = time.monotonic()
        with suppress(Closed):
            control.send(
                Admitted(
                    identity=self.identity,
                    fingerprint=self.weights.index.fingerprint,
                    entries=self.entries(hello.worker),
                )
            )

    def entries(self, worker: str) -> tuple[TensorEntry, ...]:
        """The index of what a worker is to load, each tensor once."""
        names = {
            piece.spec.name
            for seat in seats_of(self.plan)
            if seat.worker == worker
            for piece in pieces_of(self.plan, seat)
        }
        return tuple(entry for entry in self.weights.index.tensors if entry.name in names)
