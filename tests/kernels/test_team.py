"""Threads that meet: none passes early, teams do not disturb each other, helpers end."""

import gc
import threading
from functools import cache

import numpy as np
import pytest

from plancc.kernels.address import atomic_add, atomic_get, atomic_put
from plancc.kernels.compile import Compiled, compile_entry
from plancc.kernels.team import Team, meet, share_of

ROUNDS = 300


def _count_rounds(thread, num_threads, barrier, counters):  # type: ignore[no-untyped-def]
    """Add one; after the barrier everyone must see everyone's; then meet again."""
    for round_ in range(1, 301):
        atomic_add(counters, 0, 1)
        meet(barrier, num_threads)
        if atomic_get(counters, 0) != round_ * num_threads:
            atomic_add(counters, 1, 1)
        meet(barrier, num_threads)


def _write_shares(count, num_threads, shares):  # type: ignore[no-untyped-def]
    for thread in range(num_threads):
        first, end = share_of(count, thread, num_threads)
        atomic_put(shares, 2 * thread, first)
        atomic_put(shares, 2 * thread + 1, end)


@cache
def count_rounds() -> Compiled:
    return compile_entry(_count_rounds, "void(int64, int64, int64, int64)")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nobody_passes_the_barrier_before_all_have_come(threads: int) -> None:
    counters = np.zeros(2, np.int64)
    Team(threads).run(count_rounds(), counters.ctypes.data)
    assert counters.tolist() == [ROUNDS * threads, 0]


def test_teams_of_several_python_threads_run_side_by_side() -> None:
    counters = [np.zeros(2, np.int64) for _ in range(3)]
    function = count_rounds()

    def work(mine: np.ndarray) -> None:  # type: ignore[type-arg]
        team = Team(2)
        for _ in range(3):
            mine[:] = 0
            team.run(function, mine.ctypes.data)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in counters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [mine.tolist() for mine in counters] == [[2 * ROUNDS, 0]] * 3


def test_helpers_end_with_their_team() -> None:
    before = set(threading.enumerate())
    team = Team(3)
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 2
    del team
    gc.collect()
    for helper in helpers:
        helper.join(timeout=10)
    assert not any(helper.is_alive() for helper in helpers)


@pytest.mark.parametrize(("count", "threads"), [(0, 2), (1, 3), (7, 3), (64, 5)])
def test_shares_cover_everything_once(count: int, threads: int) -> None:
    shares = np.zeros((threads, 2), np.int64)
    compile_entry(_write_shares, "void(int64, int64, int64)")(count, threads, shares.ctypes.data)
    assert [i for first, end in shares for i in range(first, end)] == list(range(count))
    sizes = [end - first for first, end in shares]
    assert max(sizes) - min(sizes) <= 1
