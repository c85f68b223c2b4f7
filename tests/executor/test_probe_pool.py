"""The probe's processes: what is said when one is lost, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from plancc.executor.probe_pool import WorkerPool
from plancc.ir.errors import RunFailed

HELD = """
import sys, time
from plancc.executor.probe_pool import WorkerPool
with WorkerPool({"cpu0": 1, "cpu1": 1}) as pool:
    print(*pool.pids().values(), flush=True)
    time.sleep(60)
"""


LISTEN = {"do": "listen", "address": "127.0.0.1"}


def test_a_process_that_is_killed_fails_the_run_by_name_and_takes_the_others_with_it() -> None:
    pids: dict[str, int] = {}
    with pytest.raises(RunFailed, match="device cpu1: listen: its process ended with -9"):
        ask_after(signal.SIGKILL, pids, limit_s=20)
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_an_answer_that_is_late_fails_the_run_and_leaves_no_process() -> None:
    pids: dict[str, int] = {}
    began = time.monotonic()
    with pytest.raises(RunFailed, match="device cpu1: listen: no answer in 1 s"):
        ask_after(signal.SIGSTOP, pids, limit_s=1)
    assert time.monotonic() - began < 10
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_a_process_that_fails_is_reported_with_its_last_words() -> None:
    with WorkerPool({"cpu0": 1}) as pool, pytest.raises(RunFailed, match="unknown request"):
        pool.ask("cpu0", {"do": "dance"}, limit_s=20)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_one_that_started_it(end: signal.Signals) -> None:
    room = str(Path(__file__).parents[2] / ".src")
    environment = {**os.environ, "PYTHONPATH": room}
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", HELD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment, text=True,
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(end)
        parent.wait(10)
    assert all_gone(pids, within_s=10)


def ask_after(sent: signal.Signals, pids: dict[str, int], *, limit_s: float) -> None:
    """Ask the second of two processes after it was sent a signal; `pids` is filled on the way."""
    with WorkerPool({"cpu0": 1, "cpu1": 1}) as pool:
        pids.update(pool.pids())
        os.kill(pids["cpu1"], sent)
        pool.ask("cpu1", LISTEN, limit_s=limit_s)


def all_gone(pids: list[int], *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
