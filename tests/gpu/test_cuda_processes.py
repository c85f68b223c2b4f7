"""A process for each card, joined by NCCL: the bits of one card, and of one process."""

import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

if torch.cuda.device_count() < 2:
    pytest.skip(
        f"wants two CUDA devices, found {torch.cuda.device_count()}", allow_module_level=True
    )

from plancc_apart import answer_of, plan_on_cards
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gpu_plans import BACKENDS, cards_here
from plancc_group_plans import stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of, write_plan
from plancc_run import SUPPORT, run_planrun

from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.fleet import Fleet
from plancc.executor.messages import Report
from plancc.executor.request import Outcome, Request
from plancc.executor.session import Session
from plancc.executor.weights import read_weights
from plancc.ir.errors import RunFailed
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan

pytestmark = pytest.mark.gpu
SPEC = TinyLlama(num_layers=5, hidden_size=256, intermediate_size=704, num_heads=8, num_kv_heads=2,
                 dtype="bfloat16")  # fmt: skip
PROMPT, TOKENS = tuple(7 * i % 300 for i in range(250)), 40  # steps cross a border of graphs
SIZES: dict[str, Any] = {"context": 400, "prefill_chunk": 100}
TEXT = "What is a bit? " * 4


def pipeline(*cuts: int) -> list[PlacedStage]:
    return [stage(span, f"gpu{i}") for i, span in enumerate(pairwise((0, *cuts, 5)))]


def group(tile: int, mixer: Any = "replicated") -> list[PlacedStage]:
    return [stage((0, 5), "gpu0", "gpu1", tiles=(tile,), mixer=mixer)]


SHAPES = {
    "2": pipeline(2), "2, head first": pipeline(3),
    "tp2": group(8), "tp2 unequal": group(5),
    "tp2 owned": group(8, "owned"), "tp2 owned, unequal": group(11, "owned"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def backends_of_tests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("processes") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


def made(
    manifest: ModelManifest, name: str, stages: list[PlacedStage], workers: str = "device"
) -> Plan:
    head: Any = "first" if "head first" in name else "last"
    return plan_on_cards(manifest, stages, workers=workers, uuids=cards_here(), head=head, **SIZES)


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest, folder: Path) -> Answer:
    plan = made(manifest, "1", [stage((0, 5), "gpu0")], "host")
    return LocalRun(plan, folder, BACKENDS["Cards"]).answer(PROMPT, TOKENS)


@pytest.mark.parametrize("name", ["2", "tp2 unequal"])
def test_one_process_of_two_cards_has_the_bits_of_one_card(
    name: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    plan = made(manifest, name, SHAPES[name], "host")
    assert LocalRun(plan, folder, BACKENDS["Cards"]).answer(PROMPT, TOKENS) == alone


@pytest.mark.parametrize("mode", ["Cards", "EagerCards"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_process_for_each_card_has_the_bits_of_one_card(
    name: str, mode: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    """Twice: the second answer replays every graph of decode. Those of chunks are of others: one is
    made once its key, with the slots that it reads by turns, was met."""
    plan = made(manifest, name, SHAPES[name])
    assert {link.transport for link in plan.links if link.payload != "step"} == {"nccl"}
    request = Request(prompt_ids=PROMPT, max_tokens=TOKENS, wants_digests=True)
    found = answer_of(plan, folder.parent / f"{name}, {mode}.json", folder, request,
                      backends=BACKENDS[mode], times=2, before=4)  # fmt: skip
    assert found == alone


@pytest.mark.parametrize("name", ["2", "tp2 owned"])
def test_tokens_are_the_same_where_steps_are_timed_and_nothing_is_digested(
    name: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    plan = made(manifest, name, SHAPES[name])
    path = write_plan(plan, folder.parent / f"{name}, timed.json")
    with Fleet(plan, path, read_weights(plan, folder)) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        for wants in (False, True, True):
            request = Request(prompt_ids=PROMPT, max_tokens=TOKENS, wants_times=wants)
            *rows, outcome = session.generate(request)
            assert [row.token for row in rows] == alone.tokens  # type: ignore[union-attr]
        assert isinstance(outcome, Outcome)
        reports = session.reports(Report(slot=outcome.slot, num_tokens=outcome.num_tokens))
    for report in reports.values():
        assert 0 < len(report.run_ns) <= TOKENS - 1
        assert all(0 < time < 1e9 for time in report.run_ns)


def test_planrun_takes_each_card_for_its_own_process(
    manifest: ModelManifest, folder: Path, tmp_path: Path
) -> None:
    records = []
    for name, stages in (("1", [stage((0, 5), "gpu0")]), ("tp2", SHAPES["tp2"])):
        path = write_plan(made(manifest, name, stages), tmp_path / f"{name}.json")
        record = tmp_path / f"{name}.record"
        ran = run_planrun(path, "--prompt", TEXT, "--max-tokens", 32, "--weights", folder,
                          "--record", record, "--json")  # fmt: skip
        assert ran.code == 0, ran.err
        records.append(record.read_text())
    assert records[0] == records[1]
    for device in json.loads(ran.out)["devices"]:
        for column, size in device["allocated"].items():
            assert size <= device["planned"][column], (device["device"], column)


@pytest.mark.parametrize(("name", "victim"), [("2", 0), ("tp2", 1)])
def test_a_process_that_is_killed_ends_the_run_and_is_named(
    name: str, victim: int, manifest: ModelManifest, folder: Path
) -> None:
    """The other may be held on its card by the one that is gone; nobody waits for ever."""
    plan = made(manifest, name, SHAPES[name])
    path = write_plan(plan, folder.parent / f"{name}, killed.json")
    with Fleet(plan, path, read_weights(plan, folder)) as fleet:
        session = Session(fleet)
        session.bring_up(lambda done: None)
        rows = session.generate(Request(prompt_ids=PROMPT, max_tokens=140))
        next(rows)
        os.kill(fleet.members[victim].pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RunFailed, match=rf"worker h0\.w{victim} .* was lost in"):
            list(rows)
        assert time.monotonic() - start < 15
    assert all(member.process.popen.returncode is not None for member in fleet.members)
