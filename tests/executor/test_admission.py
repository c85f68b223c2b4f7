"""M01: nobody joins a run unless build, plan and weights agree; strangers hold nobody up."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of

from plancc.executor.admission import Admission
from plancc.executor.control import Control, Doorway, connect
from plancc.executor.failures import Closed
from plancc.executor.member import Member
from plancc.executor.messages import Admitted, Hello, Identity, Refused, identity_problems
from plancc.executor.weights import read_weights
from plancc.ir.errors import RunFailed, Stale

SECRET = b"s" * 32
SPEC = TinyLlama(num_layers=2, vocab_size=128)


@pytest.fixture
def doorway() -> Iterator[Doorway]:
    door = Doorway("127.0.0.1", SECRET)
    yield door
    door.close()


@pytest.fixture(scope="module")
def admission(tmp_path_factory: pytest.TempPathFactory) -> Admission:
    folder = write_checkpoint(tmp_path_factory.mktemp("admission") / "toy", SPEC)
    plan = build_plan(manifest_of(folder, SPEC), (0, 1, 2))
    return Admission(plan, read_weights(plan, folder))


def members(admission: Admission) -> list[Member]:
    return [
        Member(worker, (rank,), process=None, started=0.0, pid=0)  # type: ignore[arg-type]
        for rank, worker in enumerate(admission.plan.runtime.workers)
    ]


def arrival(door: Doorway) -> Control:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if found := door.arrivals():
            return found[0]
        time.sleep(0.01)
    raise AssertionError("nobody came in")


def hello_of(identity: Identity, worker: str = "h0.w1") -> Hello:
    return Hello(identity=identity, worker=worker, host="h0", pid=4711)


def test_a_worker_of_this_run_is_admitted_with_the_tensors_of_its_stage(
    doorway: Doorway, admission: Admission
) -> None:
    worker = connect("127.0.0.1", doorway.port, SECRET)
    team = members(admission)
    admission.answer(arrival(doorway), hello_of(admission.identity), team)
    answer = worker.receive()
    assert isinstance(answer, Admitted)
    names = {entry.name for entry in answer.entries}
    assert "lm_head.weight" in names
    assert not any(name.startswith("model.layers.0.") for name in names)
    assert team[1].pid == 4711
    assert team[0].control is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("protocol", 2), ("plancc", "9.9.9"), ("plan", "0" * 64), ("weights", "f" * 64)],
)
def test_a_difference_is_told_to_both_sides_with_both_values(
    doorway: Doorway, admission: Admission, field: str, value: object
) -> None:
    worker = connect("127.0.0.1", doorway.port, SECRET)
    theirs = admission.identity.model_copy(update={field: value})
    mine = admission.identity.model_dump()[field]
    line = f"{field}: expected {mine}, found {value} at worker h0.w1 on host h0"
    with pytest.raises(Stale) as error:
        admission.answer(arrival(doorway), hello_of(theirs), members(admission))
    answer = worker.receive()
    assert isinstance(answer, Refused)
    assert answer.problems == (line,)
    assert line in str(error.value)


def test_every_difference_is_told(admission: Admission) -> None:
    theirs = Identity(protocol=7, plancc="x", plan="y", weights="z")
    assert len(identity_problems(admission.identity, theirs, "w")) == 4


def test_a_worker_that_is_not_of_the_plan_or_comes_twice_is_refused(
    doorway: Doorway, admission: Admission
) -> None:
    team = members(admission)
    for _ in range(2):
        connect("127.0.0.1", doorway.port, SECRET)
    first = arrival(doorway)
    admission.answer(first, hello_of(admission.identity, "h0.w0"), team)
    with pytest.raises(Stale, match=r"expected one of h0\.w1, found h0\.w0"):
        admission.answer(first, hello_of(admission.identity, "h0.w0"), team)


def test_who_does_not_know_the_secret_stays_outside(doorway: Doorway) -> None:
    with pytest.raises(RunFailed, match=r"control connection to 127\.0\.0\.1:\d+: digest"):
        connect("127.0.0.1", doorway.port, b"t" * 32)
    time.sleep(0.1)
    assert doorway.arrivals() == []


def test_a_stranger_that_says_nothing_holds_nobody_up(doorway: Doorway) -> None:
    with socket.create_connection(("127.0.0.1", doorway.port)):
        connect("127.0.0.1", doorway.port, SECRET)
        assert arrival(doorway)


def test_a_frame_that_is_no_message_or_too_large_is_refused(doorway: Doorway) -> None:
    near = connect("127.0.0.1", doorway.port, SECRET)
    far = arrival(doorway)
    near._connection.send_bytes(b'{"kind": "hello", "surprise": 1}')
    with pytest.raises(RunFailed, match="control frame of 32 bytes"):
        far.receive()
    sender = threading.Thread(target=_send_too_much, args=(near,))
    sender.start()
    with pytest.raises(Closed):
        far.receive()
    far.close()
    sender.join()


def _send_too_much(control: Control) -> None:
    try:
        control._connection.send_bytes(b"x" * (64 * 2**20 + 1))
    except OSError:
        pass
