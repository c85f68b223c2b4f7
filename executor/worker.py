"""One worker process of a run: `python -P -m plancc.executor.worker`, its order on stdin.

It says hello before it imports torch, loads what its ranks need, joins the others, and then runs
steps until it is told to end. It ends by itself when planrun is gone: the kernel kills it with its
parent, and a closed control connection ends it as well.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from plancc.executor.control import Control, connect
from plancc.executor.failures import Closed, LinkBroken, NonFinite
from plancc.executor.messages import (
    PROTOCOL,
    Admitted,
    Beat,
    End,
    Failed,
    Hello,
    Identity,
    Message,
    Refused,
    identity_problems,
)  # fmt: skip
from plancc.executor.pulse import Pulse
from plancc.ir.errors import PlanccError, RunFailed, Stale
from plancc.ir.plan import Plan, read_plan
from plancc.ir.version import VERSION

_PR_SET_PDEATHSIG = 1
_LOADING_BEAT_S = 0.2  # a progress bar wants more than a heart


@dataclass(frozen=True)
class Order:
    """What planrun tells a worker as it starts it; the secret goes by pipe, never by argument."""

    worker: str
    plan: str
    weights: str
    weights_sha256: str
    address: str
    port: int
    secret: str
    parent: int
    backends: Mapping[str, str]


def main() -> NoReturn:
    order = Order(**json.loads(sys.stdin.readline()))
    _die_with(order.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # planrun hears it, and ends us
    plan = read_plan(Path(order.plan))
    control = connect(order.address, order.port, bytes.fromhex(order.secret))
    pulse = Pulse()
    host = next(w.host for w in plan.runtime.workers if w.name == order.worker)
    ours = Identity(
        protocol=PROTOCOL,
        plancc=VERSION,
        plan=plan.computed_digest(),
        weights=order.weights_sha256,
    )
    control.send(Hello(identity=ours, worker=order.worker, host=host, pid=os.getpid()))
    try:
        admitted = _admission(control, ours)
        _serve(order, plan, admitted, control, _listen(control), pulse)
    except Closed:
        os._exit(RunFailed.exit_code)
    except BaseException as error:
        _tell(control, pulse, error)
    os._exit(RunFailed.exit_code)


def _serve(
    order: Order, plan: Plan, admitted: Admitted, control: Control,
    inbox: "queue.SimpleQueue[Message]", pulse: Pulse,
) -> NoReturn:  # fmt: skip
    from plancc.executor.worker_run import WorkerRun  # torch, after the hello

    # not before: importing torch from a cold disk holds the interpreter for longer than a beat
    _beat(control, pulse, plan.runtime.timeouts.heartbeat_s)
    WorkerRun(
        plan=plan,
        worker=order.worker,
        folder=Path(order.weights),
        backends=order.backends,
        control=control,
        inbox=inbox,
        pulse=pulse,
    ).run(admitted)


def _admission(control: Control, ours: Identity) -> Admitted:
    """Raises Stale naming both values where this worker is of another run."""
    answer = control.receive()
    if isinstance(answer, Refused):
        raise Stale(answer.problems)
    assert isinstance(answer, Admitted)
    if problems := identity_problems(ours, answer.identity, "planrun"):
        raise Stale(problems)
    return answer


def _listen(control: Control) -> "queue.SimpleQueue[Message]":
    """Messages in order; End, and an end of the connection, end this process at once."""
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while not isinstance(message := control.receive(), End):
                inbox.put(message)
        except RunFailed:
            os._exit(RunFailed.exit_code)
        os._exit(0)

    threading.Thread(target=listen, daemon=True, name="control").start()
    return inbox


def _beat(control: Control, pulse: Pulse, interval_s: float) -> None:
    def beat() -> None:
        while True:
            message = Beat(
                phase=pulse.phase,
                progress=pulse.progress,
                cpu_ticks=int(time.process_time() * 2),
                is_waiting=pulse.is_waiting,
            )
            try:
                control.send(message)
            except Closed:
                return  # `listen` ends the process
            is_loading = pulse.phase == "load"
            time.sleep(min(interval_s, _LOADING_BEAT_S) if is_loading else interval_s)

    threading.Thread(target=beat, daemon=True, name="heartbeat").start()


def _tell(control: Control, pulse: Pulse, error: BaseException) -> None:
    """Say why before ending, then wait to be ended; a bug's traceback goes to the log."""
    if not isinstance(error, PlanccError):
        traceback.print_exc()
    text = str(error) if isinstance(error, PlanccError) else f"{type(error).__name__}: {error}"
    failed = Failed(
        exit_code=error.exit_code if isinstance(error, PlanccError) else RunFailed.exit_code,
        text=text,
        phase=pulse.phase,
        is_broken_link=isinstance(error, LinkBroken),
        non_finite_position=error.position if isinstance(error, NonFinite) else None,
    )
    try:
        control.send(failed)
        time.sleep(10)  # End comes first, unless planrun is gone
    except Closed:
        pass


def _die_with(parent: int) -> None:
    """Have Linux kill this process when its parent dies, and go if it already has.

    Elsewhere the end of the control connection does it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(RunFailed.exit_code)


if __name__ == "__main__":
    main()
