"""The plancc command: exit codes, what goes to which stream, and that nothing is half-written."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from plancc_examples import tiny_plan, write_documents

from plancc.compiler.cli import COMMANDS, plancc
from plancc.ir.command import exit_code_of
from plancc.ir.graph_text import parse_graph
from plancc.ir.plan import read_plan
from plancc.ir.verify import verify

ASK = ("--context", "64", "--prefill-chunk", "16")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run plancc in this process, as its entry point does."""

    def invoke(*words: object) -> Done:
        code = exit_code_of(lambda: plancc.main([str(word) for word in words], "plancc",
                                                standalone_mode=False))  # fmt: skip
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def documents(tmp_path: Path) -> tuple[Path, Path]:
    return write_documents(tmp_path)


@pytest.fixture
def plan(tmp_path: Path, documents: tuple[Path, Path], run: Run) -> Path:
    path = tmp_path / "a.plan.json"
    assert run("compile", *documents, *ASK, "-o", path).code == 0
    return path


def one_error(done: Done, code: int, *words: str) -> None:
    """One clear error on stderr, nothing on stdout, no traceback."""
    assert done.code == code
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.lower().count("error:") == 1
    for word in words:
        assert word in done.err, done.err


def test_compile_writes_the_plan_and_three_lines_to_stderr(
    documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "a.plan.json"
    done = run("compile", *documents, *ASK, "-o", path)
    assert (done.code, done.out) == (0, "")
    assert len(done.err.splitlines()) == 3
    written = read_plan(path)
    assert written.digest == written.computed_digest()
    assert path.read_bytes() == tiny_plan().to_json().encode()
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "a.plan.json", "model.yaml", "topo.yaml"
    ]  # fmt: skip


def test_compile_notes_a_chunk_that_is_longer_than_the_context(
    documents: tuple[Path, Path], run: Run
) -> None:
    done = run("compile", *documents, "--context", 64, "--prefill-chunk", 80, "-o", "-")
    assert done.err.startswith("note: a prefill chunk of 80 rows is longer than the context of 64")
    assert json.loads(done.out)["runtime"]["prefill_chunk"] == 80


def test_a_plan_may_go_to_stdout(documents: tuple[Path, Path], run: Run) -> None:
    done = run("compile", *documents, *ASK, "-o", "-")
    assert done.out == tiny_plan().to_json()


def test_json_is_the_same_answer_for_programs(
    documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "a.plan.json"
    with_file = json.loads(run("compile", *documents, *ASK, "-o", path, "--json").out)
    without = json.loads(run("compile", *documents, *ASK, "--json").out)
    assert with_file["ok"] is True
    assert with_file["digest"] == read_plan(path).digest == without["plan"]["digest"]
    assert with_file["status"] == "optimal"


def test_flags_reach_the_plan(documents: tuple[Path, Path], tmp_path: Path, run: Run) -> None:
    path = tmp_path / "b.plan.json"
    flags = ("--slots", 2, "--devices", "d2,d1", "--stage-layers", "4,2", "--head", "first",
             "--pin", "head=d2", "--workers", "device", "--margin", "5%", "--tp", "off",
             "--workload", "prompt=10,output=20", "--objective", "latency", "--prompt", 30,
             "--kv-dtype", "float16", "--max-devices", 2, "--accept-gap")  # fmt: skip
    assert run("compile", *documents, *ASK, *flags, "-o", path).code == 0
    ask = read_plan(path).ask
    assert (ask.slots, ask.devices, ask.stage_layers) == (2, ("d2", "d1"), (4, 2))
    assert (ask.head, ask.pin, ask.workers, ask.margin) == ("first", {"head": "d2"}, "device", 0.05)
    assert (ask.tp, ask.prompt, ask.kv_dtype, ask.accept_gap) == ("off", 30, "float16", True)
    assert ask.workload is not None
    assert (ask.workload.prompt, ask.workload.output, ask.workload.streams) == (10, 20, 1)


def test_what_does_not_fit_is_a_no_and_an_old_plan_stays(
    plan: Path, documents: tuple[Path, Path], run: Run
) -> None:
    before = plan.read_bytes()
    done = run("compile", *documents, *ASK, "--devices", "d0", "-o", plan)
    one_error(done, 1, "d0", "short")
    assert plan.read_bytes() == before
    assert len(list(plan.parent.iterdir())) == 3


def test_what_does_not_fit_is_told_to_programs_too(documents: tuple[Path, Path], run: Run) -> None:
    done = run("compile", *documents, *ASK, "--devices", "d0", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["ok"]) == (1, False)
    assert "short" in answer["error"]
    assert answer["report"] is not None


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (("--context", "0"), "--context"),
        (("--context", "many"), "--context"),
        (("--context", "9999"), "tiny goes up to 256"),
        (("--slots", "-1"), "--slots"),
        (("--devices", "d0,,d1"), "--devices"),
        (("--devices", "d9"), "d9"),
        (("--pin", "head"), "--pin: expected BLOCK=DEVICE, found 'head'"),
        (("--pin", "head=d9"), "d9"),
        (("--pin", "eyes=d0"), "--pin eyes=d0: tiny has blocks embed, head"),
        (("--pin", "head=d0", "--pin", "head=d1"), "both d0 and d1 were asked"),
        (("--stage-layers", "3,x"), "--stage-layers: expected a whole number, found 'x'"),
        (("--margin", "lots"), "--margin: expected 3% or 0.03, found 'lots'"),
        (("--margin", "300%"), "--margin"),
        (("--workload", "prompt"), "--workload"),
        (("--workload", "speed=3"), "--workload"),
        (("--workload", "prompt=1,output=1", "--objective", "prefill"), "--objective prefill:"),
        (("--workload", "prompt=1,output=1,streams=2", "--slots", "1"), "--slots 1: --workload"),
        (("--workload", "prompt=200,output=99"), "299 tokens are more than the context"),
        (("--tp", "some"), "--tp"),
        (("--kv-dtype", "int3"), "--kv-dtype"),
        (("--without", "eyes"), "--without eyes"),
        (("--objective", "speed"), "--objective"),
        (("--fast",), "--fast"),
    ],
)
def test_a_wrong_flag_is_named_and_writes_nothing(
    flags: tuple[str, ...], found: str, documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "c.plan.json"
    one_error(run("compile", *documents, *flags, "-o", path), 2, found)
    assert not path.exists()


@pytest.mark.parametrize(
    "flags",
    [(), ("-o", "-", "--json"), ("--print-after", "all", "-o", "-"), ("--stop-after", "place",
                                                                      "--json")],
)  # fmt: skip
def test_results_go_to_one_place(
    flags: tuple[str, ...], documents: tuple[Path, Path], run: Run
) -> None:
    one_error(run("compile", *documents, *ASK, *flags), 2)


@pytest.mark.parametrize("what", ["no folder", "a folder"])
def test_a_plan_that_cannot_be_written_is_one_error(
    what: str, documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "no" / "x.json" if what == "no folder" else tmp_path
    one_error(run("compile", *documents, *ASK, "-o", path), 2, str(path))


@pytest.mark.parametrize("after", ["build", "place", "lower"])
def test_printed_passes_parse_back(
    after: str, documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    printed = run("compile", *documents, *ASK, "--print-after", after, "-o", tmp_path / "x.json")
    stopped = run("compile", *documents, *ASK, "--stop-after", after)
    assert printed.out == stopped.out
    verify(parse_graph(printed.out))


def test_all_passes_are_printed_in_order(
    documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    out = run("compile", *documents, *ASK, "--print-after", "all", "-o", tmp_path / "x.json").out
    heads = [line for line in out.splitlines() if line.startswith("# after")]
    assert heads == [f"# after {name}" for name in
                     ("build", "annotate", "place", "lower", "check", "freeze")]  # fmt: skip


def test_an_absolute_source_is_noted_and_left_out(
    documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    model, topo = documents
    model.write_text(model.read_text().replace("weights/tiny", "/data/tiny"))
    done = run("compile", model, topo, *ASK, "-o", tmp_path / "a.json")
    assert done.code == 0
    assert "/data/tiny is absolute and stays out of the plan" in done.err
    assert "/data" not in (tmp_path / "a.json").read_text()


BAD_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("model", lambda path: path.unlink(), "no such manifest"),
    ("topo", lambda path: path.unlink(), "no such topology"),
    ("model", lambda path: (path.unlink(), path.mkdir()), "expected a manifest, found a folder"),
    ("model", lambda path: path.write_text("format: [plancc.model/1"), "not YAML"),
    ("model", lambda path: path.write_text("colour: red\n" + path.read_text()), "colour"),
    ("topo", lambda path: path.write_text("colour: red\n" + path.read_text()), "colour"),
    ("topo", lambda path: path.write_text(path.read_text().replace("8.0", ".nan")), "found nan"),
    (
        "topo",
        lambda path: path.write_text(path.read_text().replace("1028096", "1 PiBB", 1)),
        "1 PiBB",
    ),
    ("topo", lambda path: path.write_text(path.read_text().replace("to: d2", "to: d1", 1)), "d0->"),
    ("topo", lambda path: path.write_text(""), "expected a plancc.topology/1 document"),
    ("model", lambda path: path.write_bytes(b"\xff\xff"), "cannot read the manifest"),
]


@pytest.mark.parametrize(("which", "spoil", "found"), BAD_FILES)
def test_a_bad_file_is_one_error_that_names_it(
    which: str, spoil: Callable[[Path], object], found: str, documents: tuple[Path, Path],
    tmp_path: Path, run: Run,
) -> None:  # fmt: skip
    path = dict(zip(("model", "topo"), documents, strict=True))[which]
    spoil(path)
    one_error(run("compile", *documents, *ASK, "-o", tmp_path / "d.json"), 2, str(path), found)
    assert not (tmp_path / "d.json").exists()


BAD_PLANS = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"[]", "expected a plancc.plan/1 document, found list"),
    (b'{"format": "plancc.plan/7"}', "expected 'plancc.plan/1', found 'plancc.plan/7'"),
    (b'{"format": "plancc.plan/1"}', "field digest: missing"),
]


@pytest.mark.parametrize("command", ["show", "diff", "check"])
@pytest.mark.parametrize(("text", "found"), BAD_PLANS)
def test_what_is_no_plan_is_refused_by_every_reader(
    command: str, text: bytes, found: str, documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "bad.plan.json"
    path.write_bytes(text)
    rest = {"show": (), "diff": (path,), "check": ("--model", documents[0], "--topo", documents[1])}
    one_error(run(command, path, *rest[command]), 2, str(path), found)


def edit(plan: Path) -> None:
    plan.write_text(plan.read_text().replace('"margin": 0.03', '"margin": 0.04'))


def test_show_tells_of_a_plan_that_was_edited(plan: Path, run: Run) -> None:
    assert run("show", plan).err == ""
    edit(plan)
    done = run("show", plan)
    assert done.code == 0
    assert f"warning: {plan}: plan was edited: digest says" in done.err
    answer = json.loads(run("show", plan, "--json").out)
    assert answer["edited"].startswith("plan was edited")


def test_show_gives_programs_the_plan(plan: Path, run: Run) -> None:
    answer = json.loads(run("show", plan, "--json").out)
    assert answer == {"edited": None, "plan": json.loads(plan.read_text())}


def test_show_has_a_text_for_git(plan: Path, run: Run) -> None:
    done = run("show", "--textconv", plan)
    assert done.code == 0
    assert done.out.startswith("inputs\n  model tiny ")


def test_check_says_yes_or_names_what_is_wrong(
    plan: Path, documents: tuple[Path, Path], run: Run
) -> None:
    files = ("--model", documents[0], "--topo", documents[1])
    done = run("check", plan, *files)
    assert (done.code, done.err) == (0, "")
    assert "sound" in done.out
    edit(plan)
    one_error(run("check", plan, *files), 1, "1 problem(s)", "plan was edited: digest says")
    answer = json.loads(run("check", plan, *files, "--json").out)
    assert (answer["ok"], len(answer["problems"])) == (False, 1)


def test_check_needs_both_files(plan: Path, run: Run) -> None:
    one_error(run("check", plan), 2, "--model")


def test_diff_exits_with_one_where_plans_differ(
    plan: Path, documents: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    other = tmp_path / "b.plan.json"
    assert run("compile", *documents, *ASK, "--devices", "d2", "-o", other).code == 0
    same, differs = run("diff", plan, plan), run("diff", plan, other)
    assert (same.code, same.out) == (0, "No changes.\n")
    assert differs.code == 1
    assert differs.out.startswith("same answers, bit for bit\n")
    answer = json.loads(run("diff", plan, other, "--json").out)
    assert answer["differs"] is True
    assert {section["title"] for section in answer["sections"]} >= {"layers", "memory"}


def test_git_diff_can_show_plans_in_words(
    plan: Path, documents: tuple[Path, Path], run: Run
) -> None:
    """The recipe of the README: a textconv that prints one fact a line."""
    folder = plan.parent
    command = (
        f"{sys.executable} -P -c 'from plancc.compiler.cli import main; main()' show --textconv"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / ".src"),
           "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}  # fmt: skip

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, env=env, check=True,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout

    git("init", "-q")
    (folder / ".gitattributes").write_text("*.plan.json diff=plancc\n")
    git("config", "diff.plancc.textconv", command)
    git("add", "a.plan.json", ".gitattributes")
    assert run("compile", *documents, *ASK, "--devices", "d2", "-o", plan).code == 0
    shown = git("diff", "a.plan.json")
    assert "+  0 d2: layers 0..5, embed, head" in shown
    assert '"ledger"' not in shown


@pytest.mark.parametrize("name", ["model", "topology", "plan"])
def test_schema_prints_the_schema_in_the_repository(name: str, run: Run) -> None:
    root = Path(__file__).resolve().parents[2]
    assert run("schema", name).out == (root / "plans/schemas" / f"{name}.schema.json").read_text()


def test_help_lists_every_command_without_importing_it() -> None:
    code = (
        "import sys; from plancc.compiler.cli import plancc; "
        "plancc.main(['--help'], 'plancc', standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'rich', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


def test_an_unknown_command_is_bad_usage(run: Run) -> None:
    one_error(run("explain-me"), 2, "explain-me")


def test_help_of_compile_names_every_flag_of_the_ask(run: Run) -> None:
    from plancc.ir.ask import Ask

    text = run("compile", "--help").out
    missing = [name for name in Ask.model_fields if f"--{name.replace('_', '-')}" not in text]
    assert missing == []
