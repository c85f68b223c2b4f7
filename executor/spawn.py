"""Starting a worker process: which interpreter, which environment, and its order by pipe."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from plancc.executor.worker import Order

_MODULE = "plancc.executor.worker"
_ENDING_S = 1.0  # between the end of a connection and that of its process
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Process:
    """A worker's process and what it wrote: nothing of it reaches our stdout."""

    popen: subprocess.Popen[bytes]
    log: IO[bytes]

    def text(self) -> str:
        """What it has written so far."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def how_it_ended(self) -> str:
        """'killed by SIGKILL', or 'ended with 3: last words'."""
        try:
            code = self.popen.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return "its control connection is closed"
        if code < 0:
            return f"killed by {_signal_name(-code)}"
        words = self.text().strip().splitlines()
        return f"ended with {code}" + (f": {words[-1]}" if words else "")

    def end(self, grace_s: float) -> str:
        """Return when it is gone, by force after `grace_s`; what it wrote."""
        try:
            self.popen.wait(max(0.0, grace_s))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        text = self.text()
        self.log.close()
        return text


def spawn(order: Order, threads: int) -> Process:
    """A process of this interpreter that runs one worker of the plan."""
    log = tempfile.TemporaryFile("a+b")  # appended to, so that reading moves no writer
    popen = subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE],
        env=_environment(threads),
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C is planrun's to handle
    )
    assert popen.stdin is not None
    try:
        popen.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        popen.stdin.close()
    except BrokenPipeError:
        pass  # it has died already; whoever watches it will say so
    return Process(popen, log)


def _environment(threads: int) -> dict[str, str]:
    """This checkout first, no current directory on the path, and the plan's thread count.

    PYTHONSAFEPATH: a folder named `kernels` in the current directory must not be found.
    """
    room = str(Path(__file__).parents[2])  # what holds the package `plancc`
    paths = [room, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONSAFEPATH": "1",
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
