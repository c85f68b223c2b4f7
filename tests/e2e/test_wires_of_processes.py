"""Ranks of cards in a process each, in Triton's interpreter, rows carried as NCCL would: the answer
of one process."""

import os
import signal
import time
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made, here and in the processes

import pytest
from plancc_apart import APART, answer_of, plan_on_cards
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import stage
from plancc_plans import manifest_of, write_plan
from plancc_run import SUPPORT

from plancc.executor.fleet import Fleet
from plancc.executor.request import Request
from plancc.executor.session import Session
from plancc.executor.weights import read_weights
from plancc.ir.errors import RunFailed
from plancc.ir.manifest import ModelManifest

SPEC = TinyLlama(num_layers=2, hidden_size=32, intermediate_size=3, vocab_size=40, num_heads=2,
                 num_kv_heads=1, dtype="bfloat16")  # fmt: skip
REQUEST = Request(prompt_ids=(7, 3, 25, 12), max_tokens=3, wants_digests=True)
SIZES: dict[str, Any] = {"context": 24, "prefill_chunk": 3}
GROUPS = [stage((0, 1), "gpu0", "gpu1", tiles=(1,), mixer="owned"),
          stage((1, 2), "gpu2", "gpu3", tiles=(2,), mixer="replicated")]  # fmt: skip


@pytest.fixture(autouse=True)
def backends_of_tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("wires") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


def test_groups_apart_answer_as_one_rank(manifest: ModelManifest, folder: Path) -> None:
    """Hops there and back, normed rows, and exchanges of both kinds."""
    answers = []
    for name, stages in (("one", [stage((0, 2), "gpu0")]), ("groups", GROUPS)):
        plan = plan_on_cards(manifest, stages, head="first", **SIZES)
        path = folder.parent / f"{name}.json"
        answers.append(answer_of(plan, path, folder, REQUEST, backends=APART))
    assert answers[0] == answers[1]


@pytest.mark.skipif("PLANCC_SWEEP" not in os.environ, reason="PLANCC_SWEEP: takes 16 s")
def test_a_rank_that_dies_while_others_meet_it_ends_the_run(
    manifest: ModelManifest, folder: Path
) -> None:
    plan = plan_on_cards(manifest, GROUPS, **SIZES | {"context": 128})
    path = write_plan(plan, folder.parent / "lost.json")
    with Fleet(plan, path, read_weights(plan, folder), APART) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        rows = session.generate(Request(prompt_ids=(5, 9, 33), max_tokens=120))
        next(rows)
        os.kill(fleet.members[1].pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RunFailed, match=r"worker h0\.w1 \(rank 1, .*\) was lost in decode"):
            list(rows)
        assert time.monotonic() - start < 5
    assert all(member.process.popen.returncode is not None for member in fleet.members)
