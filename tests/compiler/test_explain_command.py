"""The command `plancc explain`: streams, exit codes, files that do not belong together, speed."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from plancc_examples import three_devices, tiny_manifest, tiny_plan, write_documents
from rich.console import Console

from plancc.compiler.cli import plancc
from plancc.compiler.explain import explain
from plancc.compiler.explain_sensitivity import sensitivity
from plancc.compiler.render_explain import show_explanation
from plancc.ir.command import exit_code_of
from plancc.ir.manifest import read_manifest
from plancc.ir.plan import Plan
from plancc.ir.topology import read_topology

ROOT = Path(__file__).resolve().parents[2]
FLAGS = {"tp": "off", "head": "last"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(plan, model, topology)"""
    model, topo = write_documents(tmp_path)
    path = tmp_path / "a.plan.json"
    path.write_text(tiny_plan(**FLAGS).to_json())
    return path, model, topo


def run(*words: object) -> int:
    return exit_code_of(lambda: plancc.main([str(word) for word in words], "plancc",
                                            standalone_mode=False))  # fmt: skip


def test_the_answer_goes_to_stdout_and_nothing_to_stderr(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plan, model, topo = files
    assert run("explain", plan, "--topo", topo, "--model", model, "--quick") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for title in ("One step", "What binds each device", "Why this shape", "One layer moved"):
        assert title in captured.out


def test_json_has_every_number(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plan, _, topo = files
    assert run("explain", plan, "--topo", topo, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"beats", "bindings", "reasons", "sensitivity", "proof", "alternatives"}
    document = tiny_plan(**FLAGS)
    assert [beat["compute_ns"] for beat in answer["beats"]] == [
        time.compute_ns for time in document.predicted.decode.stages
    ]
    assert [row["free_bytes"] for row in answer["bindings"]] == [
        document.device(row["device"]).ledger.free_after for row in answer["bindings"]
    ]
    assert answer["sensitivity"]["value"] == document.provenance.solver.value
    assert answer["sensitivity"]["effects"]
    assert "pins" in answer["reasons"]


def test_without_a_topology_or_with_no_sensitivity_nothing_is_solved(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plan, _, topo = files
    for words in ((), ("--topo", topo, "--no-sensitivity")):
        assert run("explain", plan, *words, "--json") == 0
        assert json.loads(capsys.readouterr().out)["sensitivity"] is None


@pytest.mark.parametrize("flag", ["--topo", "--model"])
def test_a_file_that_the_plan_was_not_compiled_from_is_refused_with_both_hashes(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    plan, model, topo = files
    path = topo if flag == "--topo" else model
    name = "three" if flag == "--topo" else "tiny"
    path.write_text(path.read_text().replace(f"name: {name}\n", f"name: {name}-2\n", 1))
    assert run("explain", plan, flag, path) == 2
    captured = capsys.readouterr()
    found = read_topology(topo).digest() if flag == "--topo" else read_manifest(model).digest()
    wanted = three_devices().digest() if flag == "--topo" else tiny_manifest().digest()
    assert captured.out == ""
    for word in (f"{flag} {path}", f"{name} {wanted}", f"found {found}", "compile again"):
        assert word in captured.err


def test_html_is_written_whole(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    assert run("explain", files[0], "--html", page) == 0
    assert "What binds each device" in page.read_text(encoding="utf-8")
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "a.plan.json", "model.yaml", "topo.yaml", "why.html"
    ]  # fmt: skip


def test_the_plan_alone_needs_neither_the_solver_nor_its_tables(
    files: tuple[Path, Path, Path],
) -> None:
    code = (
        "import sys; from plancc.compiler.cli import plancc;"
        f"plancc.main(['explain', {str(files[0])!r}], standalone_mode=False);"
        "print(sorted(set(sys.modules) & {'numpy', 'ortools', 'networkx', 'yaml'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_compile_says_what_pins_cost_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, topo = write_documents(tmp_path)
    path = tmp_path / "p.json"
    words = (model, topo, "--context", 64, "--prefill-chunk", 16, "-o", path)
    assert run("compile", *words, "--stage-layers", "2,4") == 0
    assert "pins: --stage-layers 2,4 costs" in capsys.readouterr().err
    assert run("compile", *words) == 0
    assert "pins:" not in capsys.readouterr().err


def fixed(plan: Plan, *rows: dict[str, object]) -> Plan:
    """What depends on versions and on the shapes that a version lists, held still."""
    data = plan.data()
    data["provenance"]["solver"] |= {"name": "solver", "version": "0", "space": "all shapes"}
    data["digest"] = "0123456789abcdef"
    data["alternatives"] = list(rows)
    return Plan.model_validate(data)


TINY_ROWS = (
    {"shape": "one device", "verdict": "slower", "value": 1_200_000, "device": "d2"},
    {"shape": "pipeline of 3 stages", "verdict": "within margin", "value": 335_000},
    {"shape": "without --tp, --head", "verdict": "not allowed", "value": 290_000,
     "note": "d0+d1 0..5"},
)  # fmt: skip
MIXED_ROWS = (
    {"shape": "one device", "verdict": "does not fit", "short_bytes": 59474534605,
     "device": "a100"},
    {"shape": "pipeline of 3 stages", "verdict": "slower", "value": 100_002_557},
    {"shape": "pipeline of 5 stages", "verdict": "within margin", "value": 95_725_041},
    {"shape": "without --devices, --tp", "verdict": "chosen", "value": 95_538_583},
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_with_sensitivity_is_as_reviewed(
    width: int, golden: Callable[[str, str], None]
) -> None:
    plan = tiny_plan(**FLAGS)
    found = sensitivity(plan, three_devices())
    still = fixed(plan, *TINY_ROWS)
    answer = replace(explain(still), sensitivity=found)
    stream = io.StringIO()
    show_explanation(still, answer, Console(file=stream, width=width, highlight=False))
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    golden(f"explain_tiny_{width}.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_a_large_plan_is_as_reviewed(
    width: int, golden: Callable[[str, str], None]
) -> None:
    """Llama-3.3-70B over mixed cards: memory binds three devices, speed the fourth."""
    from plancc.compiler.api import compile
    from plancc.ir.ask import Ask

    manifest = read_manifest(ROOT / "plans/models/llama-3.3-70b.yaml")
    topology = read_topology(ROOT / "plans/topologies/mixed-8.yaml")
    devices = ("r3090", "r4090", "r5090", "a100")
    plan = fixed(compile(manifest, topology, Ask(tp="off", devices=devices)), *MIXED_ROWS)
    answer = replace(explain(plan), sensitivity=sensitivity(plan, topology, is_quick=True))
    stream = io.StringIO()
    show_explanation(plan, answer, Console(file=stream, width=width, highlight=False))
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    golden(f"explain_mixed_{width}.txt", "\n".join(lines) + "\n")
