"""plancc explain --measured: a run beside its plan, and which prediction is furthest off."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plancc_explain_plans import group_plan
from plancc_hand_reports import exact_report, with_prefill
from rich.console import Console

from plancc.compiler.cli import plancc
from plancc.compiler.explain_furthest import furthest_words
from plancc.compiler.explain_measured import figures_of
from plancc.compiler.measured_report import MeasuredReport
from plancc.compiler.render_measured import show_measured
from plancc.ir.command import exit_code_of
from plancc.ir.plan import Plan

MIB = 2**20


@pytest.fixture
def plan() -> Plan:
    return with_prefill(group_plan()).model_copy(update={"digest": "0123456789abcdef"})


def furthest(plan: Plan, data: dict[str, Any]) -> str:
    report = MeasuredReport.model_validate(data)
    return furthest_words(plan, report, figures_of(plan, report))


def shown(plan: Plan, data: dict[str, Any], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show_measured(plan, MeasuredReport.model_validate(data), console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def slower_report(plan: Plan) -> dict[str, Any]:
    """Stage 1 reads slower than was thought, a card holds more than its buffers."""
    data = exact_report(plan)
    data["decode"] |= {"p50_ms": 21.7, "context": [65, 96]}
    data["timed"]["p50_ms"] = 21.9
    data["stages"][1]["compute_ms"], data["stages"][2]["compute_ms"] = 6.5, 6.4
    data["hops"][0]["median_us"] = 63.5
    data["prefill"]["seconds"] = 0.0412
    data["devices"][2]["allocated"]["workspace"] += 9 * MIB
    for row, more in zip(data["devices"], (0, 40, 9, 3, 0), strict=True):
        row["peak_bytes"] = sum(row["allocated"].values()) + more * MIB
    return data


@pytest.mark.parametrize("width", [80, 120])
def test_the_page_is_as_reviewed(
    plan: Plan, width: int, golden: Callable[[str, str], None]
) -> None:
    golden(f"explain_measured_{width}.txt", shown(plan, slower_report(plan), width))


def test_a_run_as_predicted_is_off_by_nothing(plan: Plan) -> None:
    data = exact_report(plan)
    figures = figures_of(plan, MeasuredReport.model_validate(data))
    assert {item.difference for item in figures} == {0}
    assert [item.kind for item in figures if item.kind not in ("memory", "column")] == [
        "step", "compute", "hop", "compute", "exchange", "hop", "compute", "exchange", "hop",
        "rest", "clocks", "prefill",
    ]  # fmt: skip
    assert furthest(plan, data).startswith("every part within 1 % of its whole; ")


def edited(plan: Plan, kind: str) -> dict[str, Any]:
    data = exact_report(plan)
    match kind:
        case "compute":
            data["stages"][0]["compute_ms"] *= 1.5
        case "context":
            data["decode"]["context"] = [1, 3]
            data["stages"][0]["compute_ms"] -= 0.3
            data["decode"]["p50_ms"] -= 0.3
        case "exchange":
            data["stages"][4]["exchange_ms"] += 3.0
        case "waiting":
            data["stages"][3]["exchange_ms"] += 3.0
            data["stages"][3]["compute_ms"] -= 2.5
        case "hop":
            data["hops"][1]["median_us"] += 900
        case "rest":
            data["decode"]["p50_ms"] += 2.0
            data["timed"]["p50_ms"] += 2.0
        case "one launch":
            data["decode"]["p50_ms"] -= 2.0
        case "prefill":
            data["prefill"]["seconds"] *= 2
        case "column":
            data["devices"][1]["allocated"]["kv"] += 5000 * MIB
        case "beyond":
            allocated = data["devices"][1]["allocated"]
            data["devices"][1]["peak_bytes"] = sum(allocated.values()) + 3000 * MIB
    return data


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("compute", r"stage 0, d0: compute: 9.00 ms where 6.00 ms were predicted (+50.0 %); likely "
                    r"the read curve: 716 GB/s, where 1074 were predicted"),
        ("exchange", "stage 2, d3+d4: exchanges: 4.45 ms where 1.45 ms were predicted (+206.9 %); "
                     "likely the link: +250.0 us for each of 12 exchanges"),
        ("waiting", "likely waiting for the slowest rank: its ranks compute 3.90 to 6.40 ms"),
        ("hop", "stage 1, d1+d2: hop: 950.0 us where 50.0 us were predicted (+1800.0 %); likely "
                "the link"),
        ("rest", "between the parts: 2.00 ms, 10.0 % of the step; likely sampling"),
        ("one launch", "without clocks: -2.00 ms, -10.0 % of the step; by so much the run"),
        ("prefill", "prompt of 128: 80.00 ms where 40.00 ms were predicted (+100.0 %); likely the "
                    "matmul curve"),
        ("column", "d1: allocated: 16.38 GiB where 11.50 GiB were predicted (+42.5 %); most of it "
                   "kv: 5.38 GiB where 512.0 MiB were planned"),
        ("beyond", "d1: allocator's peak: 14.43 GiB where 11.50 GiB were predicted (+25.5 %); "
                   "2.93 GiB are no buffer of the plan"),
    ],
)  # fmt: skip
def test_the_part_that_is_off_by_most_of_its_whole_is_named(
    plan: Plan, kind: str, words: str
) -> None:
    assert words in furthest(plan, edited(plan, kind))


def test_small_kernels_that_are_late_are_said_to_be_launches(plan: Plan) -> None:
    """The same bytes in layers of 40 KiB: what is lost is lost at every kernel."""
    mixer = {"kind": "attention", "weight_bytes": 10240, "kv_bytes_per_token": 0}
    mlp = {"kind": "swiglu", "weight_bytes": 30720, "intermediate_size": 4096}
    data = plan.data()
    data["model"]["layers"] = [{"mixer": mixer, "mlp": mlp}] * 30
    small = Plan.model_validate(data)
    words = furthest(small, edited(small, "compute"))
    assert "likely the launch cost: +96.8 us for each of 31 kernels, which read 7.7 KiB" in words


def test_reading_less_kv_than_was_predicted_is_told_as_that(plan: Plan) -> None:
    data = plan.data()
    data["model"]["layers"] = [
        {"mixer": {"kind": "attention", "weight_bytes": MIB, "kv_bytes_per_token": MIB},
         "mlp": {"kind": "swiglu", "weight_bytes": MIB, "intermediate_size": 4096}}
    ] * 30  # fmt: skip
    long = Plan.model_validate(data)
    words = furthest(long, edited(long, "context"))
    assert "likely the shorter context: 756.0 MiB of KV were not read" in words


def test_parts_that_were_not_timed_leave_no_rest_and_no_number(plan: Plan) -> None:
    data = exact_report(plan)
    data["stages"][0]["compute_ms"], data["hops"] = None, []
    figures = figures_of(plan, MeasuredReport.model_validate(data))
    assert all(item.kind != "rest" for item in figures)
    assert [item.measured for item in figures if item.kind == "hop"] == [None] * 3
    assert "stage 0, d0: compute " in shown(plan, data, 100)


# --- the command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """(plan, report of it)"""
    plan = group_plan()
    path, report = tmp_path / "a.plan.json", tmp_path / "out.json"
    path.write_text(plan.to_json())
    report.write_text(json.dumps(exact_report(plan)))
    return path, report


def run(*words: object) -> int:
    return exit_code_of(lambda: plancc.main([str(word) for word in words], "plancc",
                                            standalone_mode=False))  # fmt: skip


def test_json_has_every_figure(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("explain", files[0], "--measured", files[1], "--json") == 0
    answer = json.loads(capsys.readouterr().out)["measured"]
    step, first, *_ = answer["figures"]
    assert (step["kind"], step["measured"], step["predicted"]) == ("step", 20_000_000, 20_000_000)
    assert (first["kind"], first["stage"], first["off_percent"]) == ("compute", 0, 0.0)
    assert answer["runs"] == 5
    assert answer["furthest"]


def test_html_is_the_same_screen(files: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "m.html"
    assert run("explain", files[0], "--measured", files[1], "--html", page) == 0
    assert "Measured against predicted" in page.read_text(encoding="utf-8")


def test_a_report_of_another_plan_is_refused_with_both_digests(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(files[1].read_text()) | {"plan": "f" * 64}
    files[1].write_text(json.dumps(data))
    assert run("explain", files[0], "--measured", files[1]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for word in ("f" * 64, group_plan().digest, str(files[1]), "--bench --report"):
        assert word in captured.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "plancc.plan/1"}, "field format: expected 'plancc.report/1'"),
        ({"decode": {}}, "field decode.p50_ms: missing"),
    ],
)
def test_another_document_is_refused_naming_the_field(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    files[1].write_text(json.dumps(json.loads(files[1].read_text()) | change))
    assert run("explain", files[0], "--measured", files[1]) == 2
    assert said in capsys.readouterr().err


def test_a_topology_has_no_part_in_it(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("explain", files[0], "--measured", files[1], "--topo", "t.yaml") == 2
    assert "--topo has no part in it" in capsys.readouterr().err
