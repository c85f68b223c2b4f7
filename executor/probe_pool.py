"""The probe's processes, one a device, as a run has them: started, asked, and always ended."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from plancc.ir.errors import RunFailed

_END_S = 2.0  # what a process gets to end by itself
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class _Member:
    name: str
    process: subprocess.Popen[bytes]
    connection: Connection
    log: IO[bytes]

    def last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class WorkerPool:
    """Processes that answer requests; leaving the block ends every one of them.

    Raises RunFailed when one dies, when one reports an error, or when an answer is late. A
    process also ends by itself when this one is gone: its request pipe then reads as closed.
    """

    def __init__(self, threads: Mapping[str, int]) -> None:
        self._threads = dict(threads)
        self._members: dict[str, _Member] = {}

    def __enter__(self) -> Self:
        try:
            for name, threads in self._threads.items():
                self._members[name] = _start(name, threads)
        except BaseException:
            self.end(grace_s=0.0)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.end(grace_s=0.0 if kind else _END_S)

    def pids(self) -> dict[str, int]:
        return {name: member.process.pid for name, member in self._members.items()}

    def ask(self, name: str, request: Mapping[str, Any], *, limit_s: float) -> Any:
        """The answer of one process, the others idle."""
        return self.ask_all({name: request}, limit_s=limit_s)[name]

    def ask_all(
        self, requests: Mapping[str, Mapping[str, Any]], *, limit_s: float
    ) -> dict[str, Any]:
        """Answers by name; every request is out before the first answer is awaited."""
        for name, request in requests.items():
            self._send(name, request)
        answers: dict[str, Any] = {}
        deadline = time.monotonic() + limit_s
        waiting = {self._members[name].connection: name for name in requests}
        while waiting:
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                late = sorted(waiting.values())[0]
                raise RunFailed(f"probe: device {late}: {requests[late]['do']}: no answer in "
                                f"{limit_s:g} s")  # fmt: skip
            for connection in ready:
                assert isinstance(connection, Connection)
                name = waiting.pop(connection)
                answers[name] = self._receive(name, requests[name]["do"])
        return answers

    def end(self, grace_s: float = _END_S) -> None:
        """End all, first by closing their pipes, then by force; nothing survives this call."""
        for member in self._members.values():
            member.connection.close()
        deadline = time.monotonic() + grace_s
        for member in self._members.values():
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, deadline - time.monotonic()))
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
            member.log.close()
        self._members.clear()

    def _send(self, name: str, request: Mapping[str, Any]) -> None:
        try:
            self._members[name].connection.send_bytes(json.dumps(request).encode())
        except OSError:
            raise self._died(name, request["do"]) from None

    def _receive(self, name: str, phase: str) -> Any:
        try:
            answer = json.loads(self._members[name].connection.recv_bytes())
        except (EOFError, OSError):
            raise self._died(name, phase) from None
        if "error" in answer:
            raise RunFailed(f"probe: device {name}: {phase}: {answer['error']}")
        return answer["result"]

    def _died(self, name: str, phase: str) -> RunFailed:
        member = self._members[name]
        with suppress(subprocess.TimeoutExpired):
            member.process.wait(_END_S)
        return RunFailed(f"probe: device {name}: {phase}: its process ended with "
                         f"{member.process.poll()}: {member.last_words()}")  # fmt: skip


def _start(name: str, threads: int) -> _Member:
    """A process with so many threads for every library that has its own pool."""
    room = str(Path(__file__).parents[2])  # what holds the package `plancc` of this very checkout
    path = os.pathsep.join(filter(None, (room, os.environ.get("PYTHONPATH", ""))))
    counts = dict.fromkeys(_THREAD_VARIABLES, str(threads))
    # -P and PYTHONSAFEPATH: a folder named `kernels` in the current directory must not be found.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **counts}
    ours, theirs = Pipe()
    log = tempfile.TemporaryFile()
    module = "plancc.executor.probe_worker"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(theirs.fileno())],
        pass_fds=(theirs.fileno(),), env=environment, stdin=subprocess.DEVNULL,
        stdout=log, stderr=log, start_new_session=True,  # Ctrl-C is ours to handle
    )  # fmt: skip
    theirs.close()
    return _Member(name, process, ours, log)
