"""--bench: medians of runs, parts that may be absent, what is shown of them."""

import io
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of
from rich.console import Console

from plancc.executor.bench import bench_prompt, warm_ups
from plancc.executor.bench_report import bench_report
from plancc.executor.bench_screen import show_report
from plancc.executor.request import Outcome, RankReport, Request
from plancc.executor.screen import timing_lines
from plancc.executor.session import LoadSummary
from plancc.ir.errors import BadInput
from plancc.ir.plan import Plan

SPEC = TinyLlama(num_layers=3, vocab_size=128)
LOAD = LoadSummary(wall_ns=9, open_ns=1, load_ns=4 * 10**9, bytes_read=16 * 10**9,
                   allocated={"cpu0": {"weights": 2**20, "kv": 5}})  # fmt: skip


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = write_checkpoint(tmp_path_factory.mktemp("bench") / "toy", SPEC)
    return build_plan(manifest_of(folder, SPEC), (0, 1, 3))


def outcome(*steps_ms: int, prefill_ms: int = 10) -> Outcome:
    return Outcome(finish="length", slot=0, num_tokens=9, prefill_ns=prefill_ms * 10**6,
                   decode_ns=tuple(ms * 10**6 for ms in steps_ms))  # fmt: skip


class CardReport(RankReport):
    """Of a rank on a device whose allocator tells its peak."""

    peak_bytes: int | None = None
    device_name: str | None = None


def reports(**fields: Any) -> dict[int, RankReport]:
    base = {"is_finite": True, "run_ns": (), "sent": {}, "received": {}}
    return {rank: CardReport.model_validate(base | {"rank": rank} | fields) for rank in (0, 1)}


def shown(report: dict[str, Any], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_speeds_are_medians_over_the_runs_and_each_run_is_told(plan: Plan) -> None:
    runs = [outcome(10, 10, 10, prefill_ms=5), outcome(20, 20, 50, prefill_ms=40),
            outcome(30, 30, 30, prefill_ms=20)]  # fmt: skip
    report = bench_report(plan, LOAD, 6, runs, outcome(70, 90), reports())
    assert report["decode"]["p50_ms"] == 20
    assert report["decode"]["p95_ms"] == 30
    assert report["decode"]["tokens_per_s"] == pytest.approx(3 / 0.09)
    assert report["prefill"]["tokens_per_s"] == pytest.approx(6 / 0.02)
    assert (report["repeat"], [run["p50_ms"] for run in report["runs"]]) == (3, [10, 20, 30])
    assert report["decode"]["context"] == [7, 9]
    assert report["timed"] == {"steps": 2, "p50_ms": 70}


def test_what_was_not_timed_is_none_and_shown_as_nothing(plan: Plan) -> None:
    """A step that is one launch has no parts."""
    report = bench_report(plan, LOAD, 6, [outcome(2, 2)], outcome(2), reports())
    assert [row["compute_ms"] for row in report["stages"]] == [None, None]
    assert [row["exchange_ms"] for row in report["stages"]] == [0.0, 0.0]
    assert report["hops"] == []
    line = next(line for line in shown(report).splitlines() if "stage 1 on cpu1" in line)
    assert line.split() == ["stage", "1", "on", "cpu1,", "a", "step", "1.00", "ms"]


def test_hops_have_their_prediction_where_it_is_about_them(plan: Plan) -> None:
    """0->1 takes rows, 1->0 the step's news; on a screen they stand beside what was predicted."""
    stamps = reports(sent={0: [100], 1: [300]}, received={0: [7100], 1: [5300]})
    report = bench_report(plan, LOAD, 6, [outcome(2)], outcome(2), stamps)
    assert [(hop["payload"], hop["stage"], hop["median_us"], hop["predicted_us"])
            for hop in report["hops"]] == [("hidden", 0, 7, 100), ("step", 1, 5, 100)]  # fmt: skip
    line = next(line for line in shown(report).splitlines() if "hop 0 to 1" in line)
    assert line.split()[4:] == ["median", "7.0", "us", "100.0", "us", "-93.0", "%"]


def test_the_peak_of_an_allocator_is_told_where_there_is_one(plan: Plan) -> None:
    """Beside the ledger less its overhead, which no allocator of ours has."""
    without = bench_report(plan, LOAD, 6, [outcome(2)], outcome(2), reports())
    assert [row["peak_bytes"] for row in without["devices"]] == [None, None]
    assert without["machine"]["devices"] == {}
    told = reports(peak_bytes=2**20 + 2**18, device_name="Maker Card")
    report = bench_report(plan, LOAD, 6, [outcome(2)], outcome(2), told)
    assert [row["peak_bytes"] for row in report["devices"]] == [2**20 + 2**18] * 2
    assert report["machine"]["devices"]["cpu1"] == "Maker Card"
    line = next(line for line in shown(report).splitlines() if "allocator's peak" in line)
    assert line.split()[3:] == ["1.2", "MiB", "1.0", "MiB", "+25.0", "%"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_fits_and_says_how_it_was_measured(plan: Plan, width: int) -> None:
    text = shown(bench_report(plan, LOAD, 6, [outcome(2, 2)] * 5, outcome(2), reports()), width)
    assert all(len(line) <= width for line in text.splitlines())
    words = " ".join(text.split())
    assert "5 runs, medians; decode at 7 to 8 tokens of context, predicted for 64" in words
    assert "4.00 GB/s" in words


def test_a_large_load_is_told_in_gigabytes(plan: Plan) -> None:
    report = bench_report(plan, LOAD, 6, [outcome(2)], outcome(2), reports())
    assert next(timing_lines(report)).startswith("load    16.00 GB in 4.00 s, 4.00 GB/s")


def test_a_prompt_without_words_is_as_long_as_asked(plan: Plan) -> None:
    assert len(bench_prompt(plan, 8, 21)) == 21
    assert len(bench_prompt(plan, 8)) == plan.runtime.context - 8
    with pytest.raises(BadInput, match="a prompt of 57 and --max-tokens 8 are more than"):
        bench_prompt(plan, 8, 57)
    with pytest.raises(BadInput, match=r"--max-tokens 64 leaves no room for a prompt.* at most 63"):
        bench_prompt(plan, 64)


@pytest.mark.parametrize(
    ("prompt", "tokens", "expected"),
    [(64, 128, [(64, 8), (184, 8)]), (3, 4, [(3, 4)]), (90, 200, [(90, 8), (192, 8)])],
)
def test_it_warms_up_where_the_answer_begins_and_where_it_ends(
    prompt: int, tokens: int, expected: list[tuple[int, int]]
) -> None:
    """The context of 200 ends the last one."""
    request = Request(prompt_ids=tuple(range(prompt)), max_tokens=tokens)
    found = warm_ups(request, 200)
    assert [(len(one.prompt_ids), one.max_tokens) for one in found] == expected
    assert all(set(one.prompt_ids) <= set(request.prompt_ids) for one in found)
