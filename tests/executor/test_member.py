"""M06: time limits are about lack of progress. A clock by hand, no process."""

import subprocess
from typing import Any

import pytest

from plancc.executor.member import Member, all_wait, error_of
from plancc.executor.messages import Beat, Failed
from plancc.ir.errors import BadInput, ClearNo, RunFailed
from plancc.ir.plan import Timeouts, Worker

LIMITS = Timeouts(start_s=10, load_s=3, step_s=3, heartbeat_s=1)


class Process:
    """A process that lives, or ended as said."""

    def __init__(self, end: str | None = None) -> None:
        self.end, self.popen = end, self

    def poll(self) -> int | None:
        return None if self.end is None else 1

    def how_it_ended(self) -> str:
        assert self.end is not None
        return self.end


def member(end: str | None = None, **fields: Any) -> Member:
    worker = Worker(name="h0.w1", host="h0", devices=("cpu1",))
    return Member(worker, (1,), Process(end), started=0.0, pid=4711, **fields)  # type: ignore


def beat(phase: str, progress: int, *, cpu: int = 0, waits: bool = False) -> Beat:
    return Beat(phase=phase, progress=progress, cpu_ticks=cpu, is_waiting=waits)


def hear(who: Member, now: float, what: Beat) -> None:
    who.last_seen = now
    who.hear(what)


def test_a_slow_step_lives_as_long_as_its_heart_beats() -> None:
    one = member(control=object())
    for second in range(60):
        hear(one, float(second), beat("prefill", 5))
        assert one.loss(second + 0.9, LIMITS) is None
        assert not all_wait([one], second + 0.9, LIMITS)


def test_silence_is_noticed_after_five_beats() -> None:
    one = member(control=object())
    hear(one, 100.0, beat("idle", 0))
    assert one.loss(104.9, LIMITS) is None
    assert one.loss(105.1, LIMITS) == "no heartbeat for 5 s"


def test_a_worker_gets_the_start_limit_for_its_first_beat() -> None:
    one = member(control=object(), last_seen=100.0)
    assert one.loss(109.9, LIMITS) is None
    assert one.loss(110.1, LIMITS) == "no heartbeat for 10 s"


def test_loading_slowly_is_progress_and_loading_nothing_is_not() -> None:
    one = member(control=object())
    for second in range(20):
        hear(one, float(second), beat("load", second * 2**20))
        assert one.loss(second + 0.5, LIMITS) is None
    for second in range(20, 24):
        hear(one, float(second), beat("load", 19 * 2**20))
    assert one.loss(24.0, LIMITS) == "nothing was loaded or computed for 3 s"


def test_compiling_kernels_while_loading_is_progress() -> None:
    one = member(control=object())
    for second in range(20):
        hear(one, float(second), beat("load", 0, cpu=second * 2))
    assert one.loss(19.5, LIMITS) is None


def test_workers_that_all_wait_for_each_other_are_stuck_and_one_that_works_is_not() -> None:
    team = [member(control=object()) for _ in range(3)]
    for second in range(6):
        for one in team:
            hear(one, float(second), beat("decode", 9, waits=True))
    assert all_wait(team, 5.5, LIMITS)
    hear(team[1], 5.6, beat("decode", 9, waits=False))
    assert not all_wait(team, 5.7, LIMITS)
    hear(team[1], 5.8, beat("decode", 10, waits=True))
    assert not all_wait(team, 5.9, LIMITS)


def test_a_worker_that_never_comes_is_late_after_the_start_limit() -> None:
    assert member().loss(9.9, LIMITS) is None
    assert member().loss(10.1, LIMITS) == "it has not connected within 10 s"


def test_a_dead_process_is_named_with_how_it_ended() -> None:
    one = member("killed by SIGKILL", control=object(), last_seen=50.0)
    assert one.loss(50.1, LIMITS) == "killed by SIGKILL"
    assert one.name == "worker h0.w1 (rank 1, host h0, pid 4711)"


@pytest.mark.parametrize(("code", "kind"), [(2, BadInput), (1, ClearNo), (3, RunFailed)])
def test_what_a_worker_fails_of_keeps_its_exit_code(code: int, kind: type) -> None:
    error = error_of(member(), Failed(exit_code=code, text="so", phase="load"))
    assert type(error) is kind
    assert str(error) == "worker h0.w1 (rank 1, host h0, pid 4711) failed in load: so"


def test_planrun_itself_imports_no_torch() -> None:
    import sys

    modules = ("cli", "fleet", "session", "tasks", "oneshot", "bench", "chat", "text", "screen")
    imports = "; ".join(f"import plancc.executor.{name}" for name in modules)
    code = f"import sys; {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
