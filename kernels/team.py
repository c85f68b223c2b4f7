"""Threads that run one kernel together, and the barrier they meet at inside it.

A step of a small model is some hundred short kernels; waking threads for each would cost more than
the kernels. So a step is one call on every thread of a team, and between kernels the threads meet
at a barrier of their own: no threading layer of numba is entered, and each rank of a process may
have its team.
"""

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from plancc.kernels.address import I64, atomic_add, atomic_get, atomic_put, give_way, ints, pause
from plancc.kernels.compile import intrinsic, kernel

_ARRIVED, _GENERATION = 0, 8  # indices of int64: on cache lines of their own
_BARRIER_SIZE = 16
_SPINS = 4000  # then the cores are shared with others: let them run

_Pair: Any = types.UniTuple

Kernel = Callable[..., None]
_Jobs = queue.SimpleQueue[tuple[Kernel, tuple[Any, ...]] | None]


@kernel
def meet(barrier: Any, num_threads: Any) -> None:
    """Return when every thread of the team has called; what they wrote before is then visible."""
    if num_threads == 1:
        return
    generation = atomic_get(barrier, _GENERATION)
    if atomic_add(barrier, _ARRIVED, 1) == num_threads - 1:
        atomic_put(barrier, _ARRIVED, 0)
        atomic_add(barrier, _GENERATION, 1)
        return
    spins = 0
    while atomic_get(barrier, _GENERATION) == generation:
        spins += 1
        if spins < _SPINS:
            pause()
        else:
            give_way()


def _share_of(_context: Any, _count: Any, _thread: Any, _num_threads: Any) -> Any:
    """(first, end) of a thread's even part of `count` things."""
    pair: Any = _Pair(types.int64, 2)

    def generate(context: Any, b: ir.IRBuilder, _s: Any, args: list[ir.Value]) -> Any:
        count, thread, num_threads = args
        ends = (thread, b.add(thread, I64(1)))
        shares = [b.udiv(b.mul(count, end), num_threads) for end in ends]
        return context.make_tuple(b, pair, shares)

    return pair(*ints(3)), generate


share_of = intrinsic(_share_of)


class Team:
    """`threads` threads, the caller's among them. Used by one caller at a time.

    The helpers end when the team is collected; they hold no reference to it.
    """

    def __init__(self, threads: int) -> None:
        assert threads >= 1, threads
        self.num_threads = threads
        # One line more than the barrier needs, so that it can begin on a line.
        self._state = np.zeros(_BARRIER_SIZE + 8, np.int64)
        self._barrier = (self._state.ctypes.data + 63) // 64 * 64
        self._jobs: list[_Jobs] = [queue.SimpleQueue() for _ in range(threads - 1)]
        for index, jobs in enumerate(self._jobs):
            name = f"plancc-{index + 1}"
            arguments = (jobs, self._state)
            threading.Thread(target=_serve, args=arguments, name=name, daemon=True).start()
        weakref.finalize(self, _dismiss, self._jobs)

    def run(self, function: Kernel, *arguments: Any) -> None:
        """Call function(thread, num_threads, barrier, *arguments) on every thread.

        The function's last deed is `meet`: when the caller has left it, the others have written
        all they write, and read nothing more but the barrier.
        """
        for thread, jobs in enumerate(self._jobs, start=1):
            jobs.put((function, (thread, self.num_threads, self._barrier, *arguments)))
        function(0, self.num_threads, self._barrier, *arguments)


def _serve(jobs: _Jobs, barrier: object) -> None:
    """Do what comes until None. `barrier` is held because the last look at it may come late."""
    while (job := jobs.get()) is not None:
        function, arguments = job
        function(*arguments)
        del job, function, arguments


def _dismiss(teams_jobs: list[_Jobs]) -> None:
    for jobs in teams_jobs:
        jobs.put(None)
