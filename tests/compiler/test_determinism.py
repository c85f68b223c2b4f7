"""The same input gives the same bytes: whatever the hash seed, the folder, the number of cores."""

import difflib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plancc_examples import tiny_plan, write_documents

ROOT = Path(__file__).resolve().parents[2]
RUN = "from plancc.compiler.cli import main; main()"


def compile_in(folder: Path, seed: str, cores: str, *flags: str) -> bytes:
    """The bytes that a process of its own prints, in a folder, with a seed, on some cores."""
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / ".src")}
    pinned = ["taskset", "-c", cores] if shutil.which("taskset") else []
    words = [*pinned, sys.executable, "-P", "-c", RUN, "compile", "model.yaml", "topo.yaml",
             "--context", "64", "--prefill-chunk", "16", *flags, "-o", "-"]  # fmt: skip
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("--objective", "throughput", "--slots", "3")])
def test_two_processes_give_the_same_bytes(tmp_path: Path, flags: tuple[str, ...]) -> None:
    available = sorted(os.sched_getaffinity(0))
    one, two = tmp_path / "one", tmp_path / "a b" / "two"
    for folder in (one, two):
        folder.mkdir(parents=True)
        write_documents(folder)
    first = compile_in(one, "1", str(available[0]), *flags)
    second = compile_in(two, "4242", ",".join(map(str, available[:2])), *flags)
    assert first == second
    assert first.startswith(b'{\n  "format": "plancc.plan/1"')


def test_one_process_gives_the_bytes_of_another(tmp_path: Path) -> None:
    write_documents(tmp_path)
    assert compile_in(tmp_path, "7", "0") == tiny_plan().to_json().encode()


def test_a_moved_layer_changes_at_most_forty_lines() -> None:
    plans = [tiny_plan(devices=("d2", "d1"), stage_layers=cut) for cut in ((3, 3), (4, 2))]
    before, after = (plan.to_json().splitlines() for plan in plans)
    delta = [line for line in difflib.ndiff(before, after) if line[:1] in "+-"]
    removed = sum(line.startswith("-") for line in delta)
    assert 0 < removed <= 40
    assert len(delta) - removed <= 40
