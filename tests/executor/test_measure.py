"""Figures of a run: what is paired with what, and how a record is written."""

import json
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_local_run import LocalRun
from plancc_plans import build_plan, manifest_of

from plancc.executor.measure import hops_of, percentile, run_report
from plancc.executor.record import record_rows, write_record
from plancc.executor.request import Outcome, RankReport, Sampled
from plancc.executor.session import LoadSummary
from plancc.ir.errors import BadInput

SPEC = TinyLlama(num_layers=3, vocab_size=128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("measure") / "toy", SPEC)


def report(rank: int, sent: dict[int, list[int]], received: dict[int, list[int]]) -> RankReport:
    return RankReport.model_validate(
        {"rank": rank, "is_finite": True, "run_ns": [3, 1, 2], "sent": sent, "received": received}
    )


def test_hops_are_paired_from_the_last_back_and_halves_are_dropped(folder: Path) -> None:
    """The receiver has lost its first clock; 1->0 carries the step and was timed as well."""
    plan = build_plan(manifest_of(folder, SPEC), (0, 1, 3))
    reports = {
        0: report(0, {0: [100, 1000, 2000]}, {1: [75]}),
        1: report(1, {1: [50]}, {0: [1200, 2500]}),
    }
    rows, step = hops_of(plan, reports)
    assert (rows.source, rows.target, rows.payload) == (0, 1, "hidden")
    assert (rows.median_ns, rows.count) == (350, 2)
    assert (step.source, step.target, step.payload, step.median_ns) == (1, 0, "step", 25)


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([5, 1, 9, 3], 50) == 3
    assert percentile([5, 1, 9, 3], 95) == 9
    assert percentile([], 50) == 0


def test_rates_are_of_steps_and_of_prompt_tokens(folder: Path) -> None:
    plan = build_plan(manifest_of(folder, SPEC), (0, 3))
    load = LoadSummary(wall_ns=9, open_ns=1, load_ns=2_000_000_000, bytes_read=10**9, allocated={})
    outcome = Outcome(finish="stop", slot=0, num_tokens=12, prefill_ns=500_000_000,
                      decode_ns=(10_000_000, 30_000_000))  # fmt: skip
    data = run_report(plan, load, outcome, 10, {0: report(0, {}, {})})
    assert data["load"]["gb_s"] == 0.5
    assert data["prefill"]["tokens_per_s"] == 20
    assert data["decode"]["tokens_per_s"] == 50
    assert data["stages"][0]["compute_ms"] == 2e-6
    assert data["hop_median_us"] is None


def test_a_local_run_times_its_decode_hops(folder: Path) -> None:
    run = LocalRun(build_plan(manifest_of(folder, SPEC), (0, 1, 3)), folder)
    run.answer([3, 4, 5], max_tokens=6)
    hops = hops_of(run.plan, {row.rank: row for row in run.reports})
    assert [(hop.payload, hop.count) for hop in hops] == [("hidden", 5), ("step", 5)]


def test_a_record_is_json_lines_of_what_must_be_equal(folder: Path, tmp_path: Path) -> None:
    plan = build_plan(manifest_of(folder, SPEC), (0, 3))
    sampled = [Sampled(token=7, position=2, logits_sha256="ab")]
    outcome = Outcome(finish="length", slot=0, num_tokens=2, prefill_ns=1, decode_ns=())
    kv = report(0, {}, {}).model_copy(update={"kv_sha256": {1: "d1", 0: "d0"}})
    path = tmp_path / "run.record"
    write_record(path, record_rows(plan, [5, 6], sampled, outcome, {0: kv}))
    assert plan.weights is not None
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"format": "plancc.record/1", "model": "toy", "weights": plan.weights.sha256,
         "prompt": [5, 6]},
        {"step": 0, "position": 2, "token": 7, "logits_sha256": "ab"},
        {"layer": 0, "tokens": 2, "kv_sha256": "d0"},
        {"layer": 1, "tokens": 2, "kv_sha256": "d1"},
        {"finish": "length"},
    ]  # fmt: skip


def test_a_record_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"gone/run\.record: cannot write it: No such"):
        write_record(tmp_path / "gone" / "run.record", [])
    assert list(tmp_path.iterdir()) == []
