"""What planprobe refuses before it starts a process, and with which words."""

from pathlib import Path

import pytest
import yaml

from plancc.executor import probe, probe_cpu, probe_cuda
from plancc.executor.backend.cuda_host import Cards
from plancc.executor.probe_cli import planprobe
from plancc.ir.command import exit_code_of
from plancc.ir.document import parse_document
from plancc.ir.topology import TOPOLOGY_FORMAT, Device, Host, Topology

GIB = 2**30
OTHER_KIND = """
format: plancc.topology/1
name: card
hosts: [{name: h0, address: 127.0.0.1}]
devices: [{name: gpu0, host: h0, kind: tpu, total_bytes: 1 GiB, free_bytes: 1 GiB, read_gb_s: 9}]
"""
MEASURED = Topology(
    name="one",
    hosts=(Host(name="h0", address="127.0.0.1"),),
    devices=(Device(name="cpu0", host="h0", kind="cpu", total_bytes=GIB, free_bytes=GIB,
                    read_gb_s=9.5),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _host_of_eight_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_cpu, "host_memory_bytes", lambda: (8 * GIB, 6 * GIB))
    monkeypatch.setattr(probe_cpu, "num_cores", lambda: 4)
    monkeypatch.setattr(probe_cuda, "find_cards", lambda: Cards(()))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--cpu-devices 0", "--cpu-devices: expected at least 1, found 0"),
        (
            "--cpu-devices 2 --cpu-memory 1GiB,1GiB,1GiB",
            "1 value for all or 2 for 2 devices, found 3",
        ),
        ("--cpu-memory 300MIX", "--cpu-memory: expected bytes such as '22.5 GiB'"),
        ("--cpu-memory 0MiB", "--cpu-memory: expected more than 0, found 0"),
        ("--cpu-devices 2 --cpu-memory 5GiB", "declare 10.00 GiB in all, host h0 has 8.00 GiB"),
        ("--cpu-threads 5", "at most the 4 cores of host h0, found 5"),
        ("--cpu-threads two", "expected a whole number, found 'two'"),
        ("--cpu-devices 3 --cpu-threads 1 --cpu-threads 2", "1 value for all or 3"),
        ("--host-name h/0", "--host-name: expected letters"),
        ("--address 192.0.2.1", "--address: this host cannot listen at 192.0.2.1"),
        ("--dtype int8", "Invalid value for '--dtype'"),
    ],
)
def test_a_bad_flag_is_refused_with_what_was_found_and_expected(
    flags: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topo.yaml"
    assert exit_code(*flags.split(), "-o", str(path)) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_to_write_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code() == 2
    assert "expected -o FILE" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("-o", str(tmp_path / "absent" / "topo.yaml")) == 2
    assert "absent is no folder that can be written to" in capsys.readouterr().err


def test_refresh_takes_its_devices_from_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, OTHER_KIND)
    assert exit_code("--refresh", str(path), "--cpu-devices", "2") == 2
    assert "leave out --cpu-devices" in capsys.readouterr().err


def test_nothing_can_be_staged_without_cards_or_while_files_are_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("--staged", "-o", str(tmp_path / "topo.yaml")) == 2
    assert "--staged: expected two cards or more" in capsys.readouterr().err
    path = str(written(tmp_path, OTHER_KIND))
    assert exit_code("--staged", "--join", path, path, "-o", path) == 2
    assert "--join measures none" in capsys.readouterr().err


def test_refresh_of_another_kind_of_device_leaves_the_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, OTHER_KIND)
    assert exit_code("--refresh", str(path)) == 2
    assert "devices.gpu0.kind: planprobe measures cpu, cuda, found 'tpu'" in capsys.readouterr().err
    assert path.read_text() == OTHER_KIND


def test_refresh_of_a_file_that_is_no_topology_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "format: plancc.model/1\n")
    assert exit_code("--refresh", str(path)) == 2
    assert "expected 'plancc.topology/1', found 'plancc.model/1'" in capsys.readouterr().err


def test_what_was_measured_is_told_where_its_file_cannot_be_written_after_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[probe.ProbeOptions]()

    def measure(options: probe.ProbeOptions, on_step: probe.OnStep) -> probe.Measured:
        asked.append(options)
        return probe.Measured(MEASURED, ())

    monkeypatch.setattr(probe, "probe", measure)
    assert exit_code("-o", "/dev/full", "--dtype", "float16") == 2
    said = capsys.readouterr()
    assert "/dev/full: cannot write it: No space left" in said.err
    assert parse_document(Topology, yaml.safe_load(said.out), "stdout", TOPOLOGY_FORMAT) == MEASURED
    assert [options.dtype for options in asked] == ["float16"]


def exit_code(*flags: str) -> int:
    return exit_code_of(lambda: planprobe.main(list(flags), standalone_mode=False))


def written(folder: Path, text: str) -> Path:
    path = folder / "topo.yaml"
    path.write_text(text)
    return path
