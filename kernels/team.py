"""Threads that run a list of stages together, though any of them may be kept from its core.

A decode step of a small model is hundreds of short stages, and a thread that is not running must
not hold them up. So nobody waits for a thread, only for work: a stage is cut in parts, whoever is
there takes the next part, and the stage is over when all its parts are done. A thread that comes
late finds the stages done and catches up. Which thread does a part changes no bit of it.

A state is int64 in memory, in lines of LINE: line 0 holds the job (two addresses), line t what
helper t is about, and lines num_threads + 2 i and + 2 i + 1 the parts of stage i taken and done.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from plancc.kernels.address import (
    I64,
    atomic_add,
    atomic_get,
    atomic_put,
    atomic_swap_if,
    give_way,
    ints,
    load_i64,
    pause,
)
from plancc.kernels.compile import intrinsic, kernel

LINE = 8  # int64 of a cache line: threads must not share one by chance
_IDLE, _ASKED, _AT_WORK = 0, 1, 2
_SPINS = 2000  # then the core may be wanted by the very thread that is waited for
_PARTS_A_THREAD = 4  # a core that others use, or a slower one, gets fewer of them

_Pair: Any = types.UniTuple

Kernel = Callable[[int, int, int], None]
_Calls = queue.SimpleQueue[bool]


def _share_of(_context: Any, _count: Any, _part: Any, _parts: Any) -> Any:
    """(first, end) of one of several even parts of `count` things."""
    pair: Any = _Pair(types.int64, 2)

    def generate(context: Any, b: ir.IRBuilder, _s: Any, args: list[ir.Value]) -> Any:
        count, part, parts = args
        ends = (part, b.add(part, I64(1)))
        return context.make_tuple(b, pair, [b.udiv(b.mul(count, end), parts) for end in ends])

    return pair(*ints(3)), generate


share_of = intrinsic(_share_of)


@kernel
def wait_for(address: Any, value: Any) -> None:
    """Return when the number at the address is `value`."""
    spins = 0
    while atomic_get(address, 0) != value:
        spins += 1
        if spins < _SPINS:
            pause()
        else:
            give_way()


@kernel
def parts_of(most: Any, num_threads: Any) -> Any:
    """Parts of a stage that can be cut in `most`, or in any number where that is 0."""
    if num_threads == 1:
        return 1
    wanted = _PARTS_A_THREAD * num_threads
    return min(most, wanted) if most > 0 else wanted


@kernel
def take_part(state: Any, num_threads: Any, stage: Any, parts: Any) -> Any:
    """A part of the stage that nobody has, or `parts` when there is none left."""
    taken = state + 8 * LINE * (num_threads + 2 * stage)
    return min(atomic_add(taken, 0, 1), parts)


@kernel
def part_done(state: Any, num_threads: Any, stage: Any) -> None:
    """Say that a part is done; what was written for it is seen by who leaves the stage."""
    atomic_add(state + 8 * LINE * (num_threads + 2 * stage + 1), 0, 1)


@kernel
def leave_stage(state: Any, num_threads: Any, stage: Any, parts: Any) -> None:
    """Return when all parts are done."""
    wait_for(state + 8 * LINE * (num_threads + 2 * stage + 1), parts)


@kernel
def join(state: Any, thread: Any) -> Any:
    """Whether there is work for the thread: not when the others were faster than its waking."""
    return thread == 0 or atomic_swap_if(state + 8 * LINE * thread, _ASKED, _AT_WORK)


@kernel
def leave(state: Any, thread: Any, num_threads: Any) -> None:
    """A helper says it has read the job for the last time; thread 0 calls off who never came, and
    waits for who did."""
    if thread > 0:
        atomic_put(state + 8 * LINE * thread, 0, _IDLE)
        return
    for helper in range(1, num_threads):
        at = state + 8 * LINE * helper
        if not atomic_swap_if(at, _ASKED, _IDLE):
            wait_for(at, _IDLE)


@kernel
def job_of(state: Any) -> Any:
    """The two addresses of the job."""
    return load_i64(state, 0), load_i64(state, 1)


class Team:
    """The caller and `num_threads` - 1 helpers. One caller at a time; at most `max_stages` a run.

    The helpers end when the team is collected; they hold no reference to it.
    """

    def __init__(self, num_threads: int, max_stages: int) -> None:
        assert num_threads >= 1, num_threads
        self.num_threads = num_threads
        lines = num_threads + 2 * max_stages
        self._memory = np.zeros((lines + 1) * LINE, np.int64)
        first = -self._memory.ctypes.data % (8 * LINE) // 8
        self._state = self._memory[first : first + lines * LINE].reshape(lines, LINE)
        self._state_at = self._state.ctypes.data
        self._calls: list[_Calls] = [queue.SimpleQueue() for _ in range(num_threads - 1)]
        self._has_helpers = False

    def run(self, function: Kernel, first: int, second: int) -> None:
        """Call function(thread, num_threads, state) on the team with a job of two addresses.

        It starts with `join`, ends with `leave`, and numbers its stages from 0.
        """
        if self._calls:
            self._settle()
        self._state[0, :2] = first, second
        if self._calls:
            self._call(function)
        function(0, self.num_threads, self._state_at)

    def _call(self, function: Kernel) -> None:
        if not self._has_helpers:
            self._start(function)
        self._state[self.num_threads :] = 0
        self._state[1 : self.num_threads, 0] = _ASKED
        self._wake()

    def _settle(self) -> None:
        """Where a signal broke into the run before, let the helpers end it."""
        while self._state[1 : self.num_threads, 0].any():
            self._wake()
            time.sleep(0.001)

    def _wake(self) -> None:
        for calls in self._calls:
            if calls.empty():
                calls.put(True)

    def _start(self, function: Kernel) -> None:
        for thread, calls in enumerate(self._calls, start=1):
            arguments = (calls, function, (thread, self.num_threads, self._state_at), self._memory)
            name = f"plancc-{thread}"
            threading.Thread(target=_serve, args=arguments, name=name, daemon=True).start()
        weakref.finalize(self, _dismiss, self._calls)
        self._has_helpers = True


def _serve(calls: _Calls, function: Kernel, arguments: tuple[int, int, int], _kept: object) -> None:
    """Answer calls until one says False. The state is kept: its last reading may come late."""
    while calls.get():
        function(*arguments)


def _dismiss(all_calls: list[_Calls]) -> None:
    for calls in all_calls:
        calls.put(False)
