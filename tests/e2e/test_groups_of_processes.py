"""TP groups of real processes, joined by gloo: the record of one device, byte for byte."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import group_plan, stage
from plancc_plans import manifest_of, write_plan
from plancc_run import run_planrun

from plancc.executor.fleet import Fleet
from plancc.executor.request import Request
from plancc.executor.session import Session
from plancc.executor.weights import read_weights
from plancc.ir.errors import RunFailed
from plancc.ir.plan import read_plan

SPEC = TinyLlama(num_layers=4, num_heads=5, num_kv_heads=1, head_dim=16, vocab_size=300,
                 dtype="bfloat16")  # fmt: skip
PROMPT = "What is a bit? " * 4
SHAPES = {
    "owned": [stage((0, 4), "cpu0", "cpu1", "cpu2", tiles=(3, 9), mixer="owned")],
    "2 x 2": [stage((0, 1), "cpu0", "cpu1", tiles=(8,), mixer="replicated"),
              stage((1, 4), "cpu2", "cpu3", tiles=(5,), mixer="replicated")],
    "crossed": [stage((0, 2), "cpu0", "cpu1", "cpu2", tiles=(4, 8), mixer="replicated"),
                stage((2, 4), "cpu3", "cpu4", tiles=(9,), mixer="owned")],
}  # fmt: skip
WORKERS = {"crossed": [["cpu0", "cpu3"], ["cpu1"], ["cpu2", "cpu4"]]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("groups")
    manifest = manifest_of(write_checkpoint(home / "toy", SPEC), SPEC)
    for name, stages in (SHAPES | {"one": [stage((0, 4), "cpu0")]}).items():
        plan = group_plan(manifest, stages, workers=WORKERS.get(name, ()), context=128,
                          head="first" if name == "2 x 2" else "last")  # fmt: skip
        write_plan(plan, home / f"{name}.json")
    return home


@pytest.fixture(scope="module")
def one(home: Path) -> str:
    ran = run_planrun(home / "one.json", "--prompt", PROMPT, "--max-tokens", 64,
                      "--weights", home / "toy", "--record", home / "one.record")  # fmt: skip
    assert ran.code == 0, ran.err
    return (home / "one.record").read_text()


@pytest.mark.parametrize("name", ["2 x 2", "crossed"])
def test_processes_of_a_group_write_the_record_of_one_device(
    name: str, home: Path, one: str
) -> None:
    ran = run_planrun(home / f"{name}.json", "--prompt", PROMPT, "--max-tokens", 64,
                      "--weights", home / "toy", "--record", home / f"{name}.record",
                      "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    assert (home / f"{name}.record").read_text() == one
    for device in json.loads(ran.out)["devices"]:
        for column, size in device["allocated"].items():
            assert size <= device["planned"][column], (device["device"], column)


def test_a_rank_that_is_lost_in_an_exchange_ends_the_run_and_is_named(home: Path) -> None:
    """M02 within a group: the others wait for its partial rows, but nobody waits for ever."""
    path = home / "owned.json"
    plan = read_plan(path)
    request = Request(prompt_ids=(5, 9, 33), max_tokens=120)
    with Fleet(plan, path, read_weights(plan, home / "toy")) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        answer = session.generate(request)
        next(answer)
        os.kill(fleet.members[2].pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RunFailed, match=r"worker h0\.w2 \(rank 2, .*\) was lost in decode"):
            list(answer)
        assert time.monotonic() - start < 5
    assert all(member.process.popen.returncode is not None for member in fleet.members)
