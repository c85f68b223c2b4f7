"""Threads that share stages: each part once, no stage before the last, nobody waited for."""

import gc
import threading
from functools import cache
from typing import Any

import numpy as np
import pytest

from plancc.kernels.address import atomic_add, atomic_get, atomic_put, load_i64
from plancc.kernels.compile import Compiled, compile_entry
from plancc.kernels.team import (
    Team,
    job_of,
    join,
    leave,
    leave_stage,
    part_done,
    parts_of,
    share_of,
    take_part,
)

STAGES = 200


def _count(thread, num_threads, state):  # type: ignore[no-untyped-def]
    """Add one for each part; no part may see less than all parts of the stages before."""
    if not join(state, thread):
        return
    counts, early = job_of(state)
    parts = parts_of(0, num_threads)
    for stage in range(load_i64(early, 1)):
        part = take_part(state, num_threads, stage, parts)
        while part < parts:
            if atomic_get(counts, 0) < stage * parts:
                atomic_add(early, 0, 1)
            atomic_add(counts, 0, 1)
            part_done(state, num_threads, stage)
            part = take_part(state, num_threads, stage, parts)
        leave_stage(state, num_threads, stage, parts)
    leave(state, thread, num_threads)


def _write_shares(count, parts, shares):  # type: ignore[no-untyped-def]
    for part in range(parts):
        first, end = share_of(count, part, parts)
        atomic_put(shares, 2 * part, first)
        atomic_put(shares, 2 * part + 1, end)


@cache
def counter() -> Compiled:
    return compile_entry(_count, "void(int64, int64, int64)")


def _count_with(team: Team, stages: int = STAGES) -> list[int]:
    """Parts done, and parts that were taken before their time."""
    counts, early = np.zeros(1, np.int64), np.array([0, stages], np.int64)
    team.run(counter(), counts.ctypes.data, early.ctypes.data)
    return [int(counts[0]), int(early[0])]


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_every_part_is_done_once_and_no_stage_begins_before_its_time(threads: int) -> None:
    team = Team(threads, STAGES)
    for _ in range(20):
        assert _count_with(team) == [STAGES * 4 * threads, 0]


def test_runs_of_different_lengths_follow_each_other_at_once() -> None:
    team = Team(3, STAGES)
    for stages in (1, 2, STAGES, 3) * 100:
        assert _count_with(team, stages) == [stages * 12, 0]


def test_the_caller_does_not_wait_for_helpers_that_never_come() -> None:
    team = Team(3, STAGES)
    _count_with(team)
    team._calls = [_Deaf(), _Deaf()]  # type: ignore[list-item]
    assert _count_with(team) == [STAGES * 12, 0]


class _Deaf:
    """A call that no thread hears."""

    def empty(self) -> bool:
        return True

    def put(self, _: object) -> None:
        pass


def test_teams_of_several_python_threads_run_side_by_side() -> None:
    found: list[Any] = []

    def work() -> None:
        team = Team(2, STAGES)
        found.extend(_count_with(team) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(3)]
    counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == [[STAGES * 8, 0]] * 30


def test_a_run_that_a_signal_broke_into_does_not_spoil_the_next() -> None:
    team = Team(2, STAGES)
    _count_with(team)
    counts, early = np.zeros(1, np.int64), np.array([0, STAGES], np.int64)
    team._state[0, :2] = counts.ctypes.data, early.ctypes.data
    team._call(counter())  # and the caller never begins
    assert _count_with(team) == [STAGES * 8, 0]
    assert counts[0] == STAGES * 8


def test_helpers_end_with_their_team() -> None:
    before = set(threading.enumerate())
    team = Team(3, STAGES)
    _count_with(team)
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 2
    del team
    gc.collect()
    for helper in helpers:
        helper.join(timeout=10)
    assert not any(helper.is_alive() for helper in helpers)


@pytest.mark.parametrize(("count", "parts"), [(0, 2), (1, 3), (7, 3), (64, 5)])
def test_shares_cover_everything_once(count: int, parts: int) -> None:
    shares = np.zeros((parts, 2), np.int64)
    compile_entry(_write_shares, "void(int64, int64, int64)")(count, parts, shares.ctypes.data)
    assert [i for first, end in shares for i in range(first, end)] == list(range(count))
    sizes = [end - first for first, end in shares]
    assert max(sizes) - min(sizes) <= 1
