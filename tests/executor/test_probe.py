"""planprobe from end to end: what it writes is plausible, and it leaves no process behind."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from plancc.ir.curve import Points
from plancc.ir.topology import Topology, read_topology

MIB = 2**20
ROOT = Path(__file__).parents[2]
ONE = ("--cards", "none", "--cpu-memory", "100MiB", "--cpu-threads", "1", "--quick")
TWO = (
    "--cards",
    "none",
    "--cpu-devices",
    "2",
    "--cpu-memory",
    "300MiB,200MiB",
    "--cpu-threads",
    "1",
    "--quick",
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A file of two devices, measured once, and what --json said of it."""
    path = tmp_path_factory.mktemp("probe") / "two.topo.yaml"
    done = planprobe("-o", str(path), *TWO, "--json")
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


@pytest.fixture(scope="module")
def topology(measured: tuple[Path, dict[str, Any]]) -> Topology:
    return read_topology(measured[0])


def test_the_declared_devices_are_in_the_file_with_their_budgets(topology: Topology) -> None:
    assert topology.name == "two"
    assert [host.model_dump() for host in topology.hosts] == [
        {"name": "h0", "address": "127.0.0.1"}
    ]
    rows = [(one.name, one.kind, one.total_bytes, one.free_bytes, one.overhead_bytes, one.threads)
            for one in topology.devices]  # fmt: skip
    assert rows == [
        ("cpu0", "cpu", 300 * MIB, 300 * MIB, 0, 1),
        ("cpu1", "cpu", 200 * MIB, 200 * MIB, 0, 1),
    ]


def test_reading_more_takes_longer_at_a_rate_that_memory_can_have(topology: Topology) -> None:
    for device in topology.devices:
        assert device.read_points is not None
        rises(device.read_points)
        size, us = device.read_points[-1]
        assert size >= 32 * MIB
        assert 0.2 < size / us / 1e3 < 500  # GB/s
        assert 0.05 < device.launch_us < 1000


def test_products_of_prompt_rows_have_a_rate_at_multiples_of_the_block(topology: Topology) -> None:
    for device in topology.devices:
        assert device.matmul_points is not None
        assert all(rows % 64 == 0 for rows, _ in device.matmul_points)
        assert all(1e-4 < tflops < 50 for _, tflops in device.matmul_points)
        assert device.tflops == {"bfloat16": device.matmul_points[-1][1]}
        assert device.attention_tflops is not None
        assert 1e-4 < device.attention_tflops < 50


def test_every_ordered_pair_has_a_measured_link(topology: Topology) -> None:
    assert [(link.from_, link.to, link.mode) for link in topology.links] == [
        ("cpu0", "cpu1", "network"),
        ("cpu1", "cpu0", "network"),
    ]
    for link in topology.links:
        assert link.points is not None
        rises(link.points)
        assert [size for size, _ in link.points][::5] == [64, 4 * MIB]
        assert 5 < link.points[0][1] < 50_000


def test_all_devices_together_have_a_measured_exchange(topology: Topology) -> None:
    assert [exchange.group for exchange in topology.exchanges] == [("cpu0", "cpu1")]
    rises(topology.exchanges[0].points)


def test_the_summary_is_the_file(measured: tuple[Path, dict[str, Any]], topology: Topology) -> None:
    path, summary = measured
    assert summary["file"] == str(path)
    assert summary["topology"] == topology.model_dump(mode="json", by_alias=True)
    assert 0 < summary["seconds"] < 300


def test_refresh_measures_the_same_devices_and_says_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    assert planprobe("-o", str(path), *ONE).returncode == 0
    before = read_topology(path)
    path.write_text(re.sub(r"launch_us: [0-9.]+", "launch_us: 1000000", path.read_text()))
    done = planprobe("--refresh", str(path), "--quick")
    assert done.returncode == 0, done.stderr
    launch = next(line for line in done.stdout.splitlines() if line.startswith("cpu0 launch"))
    assert launch.split()[2:4] == ["1e+06", "->"]
    assert launch.endswith("us  (-100.0 %)")
    assert "numbers moved by 3 % or more" in done.stdout.splitlines()[-1]
    after = read_topology(path)
    assert [d.free_bytes for d in after.devices] == [d.free_bytes for d in before.devices]
    assert after.devices[0].launch_us < 1000


@pytest.mark.parametrize(
    ("sent", "to_child", "code", "words"),
    [
        (signal.SIGINT, False, 130, "interrupted"),
        (signal.SIGKILL, True, 3, "its process ended with -9"),
    ],
)
def test_a_stopped_measurement_leaves_no_process_and_no_file(
    sent: signal.Signals, to_child: bool, code: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "topo.yaml"
    with subprocess.Popen(
        command("-o", str(path), *TWO), stderr=subprocess.PIPE, text=True, env=environment()
    ) as parent:
        children = wait_for_children(parent.pid, 2)
        children[1].send_signal(sent) if to_child else parent.send_signal(sent)
        _, errors = parent.communicate(timeout=30)
    assert parent.returncode == code
    assert words in errors
    assert "Traceback" not in errors
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.iterdir()) == []


def rises(points: Points) -> None:
    for (size, us), (larger, more_us) in itertools.pairwise(points):
        assert 0 < size < larger
        assert 0 < us <= more_us


def planprobe(*flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*flags), capture_output=True, text=True, timeout=240, env=environment()
    )


def command(*flags: str) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-c",
        "from plancc.executor.probe_cli import main; main()",
        *flags,
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / ".src")}


def wait_for_children(pid: int, count: int) -> list[psutil.Process]:
    def grown() -> Iterator[list[psutil.Process]]:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            yield psutil.Process(pid).children()
            time.sleep(0.05)

    return next(children for children in grown() if len(children) == count)
