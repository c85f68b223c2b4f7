"""planrun as a user runs it: real processes, joined by gloo."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_local_run import LocalRun
from plancc_plans import build_plan, manifest_of, write_plan
from plancc_run import Ran, chat_planrun, finish, run_planrun, start_planrun

from plancc.compiler.measured_report import read_measured
from plancc.ir.plan import read_plan

SPEC = TinyLlama(num_layers=4, dtype="bfloat16", vocab_size=300)
PROMPT = "What is a bit?"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights, and plans of one, two and four ranks over one or two processes.

    All run the real kernels, but for `slow`: its backend can be told to take its time.
    """
    home = tmp_path_factory.mktemp("planrun")
    manifest = manifest_of(write_checkpoint(home / "toy", SPEC), SPEC)
    quick = {"heartbeat_s": 0.4, "step_s": 1.0}
    for name, plan in {
        "one": build_plan(manifest, (0, 4), kind="cpu", context=128),
        "two": build_plan(manifest, (0, 1, 4), kind="cpu", context=128),
        "crossed": build_plan(
            manifest, (0, 1, 2, 3, 4), kind="cpu", context=128, devices=["a", "b"] * 2
        ),
        "slow": build_plan(manifest, (0, 1, 4), context=128, chunk=64, **quick),
    }.items():
        write_plan(plan, home / f"{name}.json")
    return home


def alive(pid: int) -> bool:
    """Whether a process runs; one that is only waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def worker_pids(process: subprocess.Popen[str], count: int) -> list[int]:
    """From what --verbose says as it starts them."""
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(count)]
    return [int(re.search(r"pid (\d+)\)", line).group(1)) for line in lines]  # type: ignore[union-attr]


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def one(home: Path) -> tuple[Ran, str]:
    ran = run_planrun(home / "one.json", "--prompt", PROMPT, "--max-tokens", 12,
                      "--record", home / "one.record")  # fmt: skip
    return ran, (home / "one.record").read_text()


def test_text_goes_to_stdout_and_timings_to_stderr(one: tuple[Ran, str]) -> None:
    ran, record = one
    assert ran.code == 0
    rows = [json.loads(line) for line in record.splitlines()]
    assert rows[0]["format"] == "plancc.record/1"
    assert sum("logits_sha256" in row for row in rows) == 12
    assert [row["layer"] for row in rows if "kv_sha256" in row] == [0, 1, 2, 3]
    for word in ("load", "prompt", "decode"):
        assert re.search(rf"^{word} ", ran.err, re.MULTILINE), ran.err
        assert word not in ran.out


def test_the_record_is_that_of_a_run_without_processes(home: Path, one: tuple[Ran, str]) -> None:
    rows = [json.loads(line) for line in one[1].splitlines()]
    plan = build_plan(manifest_of(home / "toy", SPEC), (0, 2, 4), kind="cpu", context=128)
    answer = LocalRun(plan, home / "toy").answer(rows[0]["prompt"], max_tokens=12)
    assert answer.tokens == [row["token"] for row in rows if "token" in row]
    assert answer.kv == {row["layer"]: row["kv_sha256"] for row in rows if "kv_sha256" in row}


@pytest.mark.parametrize(
    "name", ["two", "crossed"] if "PLANCC_SWEEP" in os.environ else ["crossed"]
)
def test_several_processes_write_the_record_of_one(
    home: Path, one: tuple[Ran, str], name: str
) -> None:
    ran = run_planrun(home / f"{name}.json", "--prompt", PROMPT, "--max-tokens", 12,
                      "--record", home / "other.record")  # fmt: skip
    assert (ran.code, ran.out) == (0, one[0].out)
    assert (home / "other.record").read_text() == one[1]


def test_json_has_text_tokens_and_every_timing_and_slow_steps_are_no_failure(
    home: Path, one: tuple[Ran, str]
) -> None:
    """M06: a step of 1.2 s, where a standstill of 1 s is a failure."""
    ran = run_planrun(home / "slow.json", "--prompt", PROMPT, "--max-tokens", 2, "--json",
                      PLANCC_FAKE_STEP_S="1.2")  # fmt: skip
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    record = [json.loads(line) for line in one[1].splitlines()]
    plan = build_plan(manifest_of(home / "toy", SPEC), (0, 4), context=128)
    answer = LocalRun(plan, home / "toy").answer(record[0]["prompt"], max_tokens=2)
    assert data["tokens"] == answer.tokens
    assert data["completion_tokens"] == 2
    assert data["finish"] == "length"
    assert data["prefill"]["tokens"] == len(record[0]["prompt"])
    assert data["load"]["bytes"] > 0
    assert data["decode"]["steps"] == 1
    assert data["decode"]["p50_ms"] >= 2400
    assert data["hop_median_us"] > 0
    assert {row["device"] for row in data["devices"]} == {"cpu0", "cpu1"}
    assert ran.err == ""


def test_a_chat_answers_line_after_line_until_its_input_ends(home: Path) -> None:
    ran = chat_planrun("What?\n\n/new\nWhat?\n", home / "one.json", "--chat", "--max-tokens", 5)
    assert ran.code == 0, ran.err
    first, second = ran.out.splitlines()
    assert first == second, "/new forgets the first turn"


def test_bench_tells_measured_beside_predicted(home: Path) -> None:
    ran = run_planrun(home / "one.json", "--bench", "--max-tokens", 5, "--repeat", 3,
                      "--prompt-tokens", 20, "--report", home / "bench.json")  # fmt: skip
    assert ran.code == 0, ran.err
    assert "3 runs, medians; decode at 21 to 24 tokens of context" in ran.out
    assert re.search(r"decode step, p50\s+[\d.]+ ms\s+1.10 ms", ran.out), ran.out
    report = json.loads((home / "bench.json").read_text())
    assert report["decode"]["steps"] == 4
    assert report["devices"][0]["planned"]["weights"] == 2**20
    assert report["devices"][0]["allocated"].keys() == {
        "weights", "kv", "blocks", "workspace", "hop_buffers",
    }  # fmt: skip
    assert report["prefill"]["tokens"] == 20
    assert report["stages"][0]["compute_ms"] > 0
    measured = read_measured(home / "bench.json", read_plan(home / "one.json"), home / "one.json")
    assert measured.repeat == 3


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--bench", "--max-tokens", "2", "--report"], "decode step, p50"),
        (["--prompt", "x", "--max-tokens", "2", "--json", "--record"], '"completion_tokens": 2'),
    ],
)
def test_a_full_disk_costs_the_file_and_not_the_numbers(
    home: Path, flags: list[str], told: str
) -> None:
    ran = run_planrun(home / "one.json", *flags, "/dev/full")
    assert ran.code == 2
    assert "/dev/full: cannot write it: No space left" in ran.err
    assert told in ran.out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--prompt", "x", "--repeat", "2"], "--repeat goes with --bench"),
        (["--prompt", "x", "--prompt-tokens", "2"], "--prompt-tokens goes with --bench"),
        (["--bench", "--prompt", "x", "--prompt-tokens", "2"], "--prompt-tokens says how long"),
        (["--bench", "--prompt-tokens", "127", "--max-tokens", "2"], "the plan's context, 128"),
    ],
)
def test_flags_of_bench_are_refused_where_they_mean_nothing(
    home: Path, flags: list[str], said: str
) -> None:
    ran = run_planrun(home / "one.json", *flags)
    assert ran.code == 2
    assert said in ran.err


def test_ctrl_c_ends_every_process_and_exits_with_130(home: Path) -> None:
    process = start_planrun(
        [home / "slow.json", "--prompt", PROMPT, "--verbose"],
        variables={"PLANCC_FAKE_STEP_S": "0.2"},
    )
    pids = worker_pids(process, 2)
    assert process.stdout is not None
    process.stdout.read(1)  # decoding
    process.send_signal(signal.SIGINT)
    ran = finish(process, timeout_s=15)
    assert ran.code == 130, ran.err
    assert ran.err.splitlines()[-1] == "interrupted"
    assert gone_within(pids, 0.5)


def test_workers_do_not_outlive_a_killed_planrun(home: Path) -> None:
    process = start_planrun(
        [home / "slow.json", "--prompt", PROMPT, "--verbose"],
        variables={"PLANCC_FAKE_STEP_S": "0.2"},
    )
    pids = worker_pids(process, 2)
    assert process.stdout is not None
    process.stdout.read(1)  # decoding
    os.kill(pids[1], signal.SIGSTOP)  # not even one that is stopped
    process.kill()
    process.communicate()
    assert gone_within(pids, 3)


def test_a_dry_run_starts_nothing(home: Path) -> None:
    ran = run_planrun(home / "two.json", "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert "plan, weights and machine match" in ran.out
    data = json.loads(run_planrun(home / "two.json", "--dry-run", "--json").out)
    assert data["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["absent.json", "--prompt", "x"], 2, "absent.json: no such plan"),
        (["one.json"], 2, "say one of --prompt TEXT, --chat, --bench, --verify or --dry-run"),
        (["one.json", "--prompt", "x", "--top-p", "0"], 2, "top-p: expected above 0"),
        (["one.json", "--prompt", "x" * 400], 2, "the plan's context is 128"),
        (["one.json", "--prompt", "x", "--weights", "nowhere"], 2, "nowhere"),
        (["one.json", "--prompt", "x", "--record", "no/such/r"], 2, "no/such is no folder that"),
        (["strange.json", "--prompt", "x"], 1, "device cpu0: the plan wants kind tpu, found"),
        (["edited.json", "--prompt", "x"], 1, "digest: the plan says"),
    ],
)
def test_bad_input_is_one_clear_error_and_an_exit_code(
    home: Path, arguments: list[str], code: int, said: str
) -> None:
    manifest = manifest_of(home / "toy", SPEC)
    write_plan(build_plan(manifest, (0, 4), kind="tpu"), home / "strange.json")
    text = (home / "one.json").read_text().replace('"context": 128', '"context": 112')
    (home / "edited.json").write_text(text)
    ran = run_planrun(home / arguments[0], *arguments[1:])
    assert ran.code == code
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_a_damaged_shard_stops_the_run_and_leaves_an_old_record_alone(
    home: Path, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "toy", SPEC)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1])
    record = tmp_path / "kept.record"
    record.write_text("kept")
    ran = run_planrun(home / "one.json", "--prompt", "x", "--weights", folder, "--record", record)
    assert ran.code == 2
    assert re.search(r"model\.safetensors: expected \d+ bytes .*, the file has \d+", ran.err)
    assert record.read_text() == "kept"
    assert set(tmp_path.iterdir()) == {folder, record}
