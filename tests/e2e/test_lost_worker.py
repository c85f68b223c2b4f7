"""M02: one worker is lost, in every phase: an error that names it within seconds, no orphans."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of
from plancc_run import FAKE, SUPPORT

from plancc.executor.fleet import Fleet
from plancc.executor.messages import Generate
from plancc.executor.request import Outcome, Request, Sampled
from plancc.executor.session import Session
from plancc.executor.weights import read_weights
from plancc.ir.errors import RunFailed

SPEC = TinyLlama(num_layers=3, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1,
                 vocab_size=128)  # fmt: skip
LONG = Request(prompt_ids=tuple(range(60)), max_tokens=30)
SHORT = Request(prompt_ids=(5, 9, 33), max_tokens=4)


@pytest.fixture(autouse=True)
def fake_backend_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@contextmanager
def fleet_of(folder: Path, cuts: tuple[int, ...] = (0, 1, 3)) -> Iterator[Fleet]:
    """Workers whose silence of 2 s is a loss."""
    write_checkpoint(folder, SPEC)
    plan = build_plan(manifest_of(folder, SPEC), cuts, context=128, heartbeat_s=0.4)
    path = folder.parent / "plan.json"
    path.write_text(plan.to_json())
    with Fleet(plan, path, read_weights(plan, folder), FAKE) as fleet:
        yield fleet


def poll_for(fleet: Fleet, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fleet.poll(0.05)


def fails_within(seconds: float, pattern: str, act: Callable[[], object]) -> None:
    start = time.monotonic()
    with pytest.raises(RunFailed, match=pattern):
        act()
    assert time.monotonic() - start < seconds


def ended(fleet: Fleet) -> bool:
    return all(member.process.popen.returncode is not None for member in fleet.members)


def lost(fleet: Fleet, rank: int, phase: str, how: str = "killed by SIGKILL") -> str:
    pid = fleet.members[rank].pid
    return rf"worker h0\.w{rank} \(rank {rank}, host h0, pid {pid}\) was lost in {phase}: {how}"


def test_killed_while_connecting(tmp_path: Path) -> None:
    with fleet_of(tmp_path / "toy") as fleet:
        os.kill(fleet.members[1].pid, signal.SIGKILL)
        fails_within(3, lost(fleet, 1, "connect"), lambda: poll_for(fleet, 10))
    assert ended(fleet)


def test_killed_while_loading(tmp_path: Path) -> None:
    with fleet_of(tmp_path / "toy") as fleet:
        while not fleet.all_admitted:
            fleet.poll(0.02)
        fleet.phase = "load"
        os.kill(fleet.members[1].pid, signal.SIGKILL)
        fails_within(3, lost(fleet, 1, "load"), lambda: poll_for(fleet, 10))
    assert ended(fleet)


def test_chunks_overlap_in_three_stages_and_the_middle_one_is_killed_while_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 chunks, 3 stages, 0.2 s each: 6 beats, where one chunk at a time would sleep for 12."""
    monkeypatch.setenv("PLANCC_FAKE_STEP_S", "0.2")
    with fleet_of(tmp_path / "toy", (0, 1, 2, 3)) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        answer, start = session.generate(LONG), time.monotonic()
        assert isinstance(next(answer), Sampled)
        assert time.monotonic() - start < 12 * 0.2
        assert isinstance(next(answer), Sampled)
        os.kill(fleet.members[1].pid, signal.SIGKILL)
        fails_within(3, lost(fleet, 1, "decode"), lambda: list(answer))
    assert ended(fleet)


def test_killed_while_prefilling_and_stopped_ones_are_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANCC_FAKE_STEP_S", "0.5")
    with fleet_of(tmp_path / "toy") as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        fleet.phase = "prefill"
        fleet.send(fleet.driver, Generate(request=LONG))
        poll_for(fleet, 0.7)
        os.kill(fleet.members[0].pid, signal.SIGKILL)
        os.kill(fleet.members[1].pid, signal.SIGSTOP)
        fails_within(3, lost(fleet, 0, "prefill"), lambda: poll_for(fleet, 10))
    assert ended(fleet)


def test_a_bad_stage_is_named_the_next_request_runs_and_an_idle_loss_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three things in one set of processes: non-finite rows, recovery, SIGSTOP while idle."""
    monkeypatch.setenv("PLANCC_FAKE_FAULT", "0:decode:nan")
    with fleet_of(tmp_path / "toy") as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        named = (r"logits for position 4 are not finite: .* from stage 0 "
                 r"\(layers 0\.\.0, rank 0, device cpu0, worker h0\.w0, host h0\)")  # fmt: skip
        fails_within(5, named, lambda: list(session.generate(SHORT)))
        *_, outcome = session.generate(SHORT.model_copy(update={"max_tokens": 1}))
        assert isinstance(outcome, Outcome)
        os.kill(fleet.members[1].pid, signal.SIGSTOP)
        fails_within(6, lost(fleet, 1, "idle", "no heartbeat for 2 s"), lambda: poll_for(fleet, 10))
    assert ended(fleet)


def test_an_exception_in_a_step_is_told_with_the_worker_and_the_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANCC_FAKE_FAULT", "0:prompt:raise")
    with fleet_of(tmp_path / "toy") as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        said = r"worker h0\.w0 \(rank 0, .*\) failed in .*: ValueError: a fault was asked for"
        fails_within(5, said, lambda: list(session.generate(SHORT)))
    assert ended(fleet)
    assert "Traceback" in fleet.logs["h0.w0"]
