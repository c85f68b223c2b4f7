"""The cache of compiled kernels: shared, never in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plancc.kernels import compile as compile_module

CODE = (
    "import ctypes\n"
    "from plancc.kernels.primitives import PRIMITIVES\n"
    "address = PRIMITIVES['round_to'].address\n"
    "value = ctypes.c_float(1.00390625 + 0.001)\n"
    "call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)\n"
    "call(ctypes.addressof(value), 1, 1)\n"
    "print(value.value)\n"
)


def _start(cache: Path | str) -> subprocess.Popen[str]:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "PYTHONSAFEPATH": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    return subprocess.Popen([sys.executable, "-c", CODE], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def _finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert float(out) == 1.0078125


def _data_files(cache: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}


def test_two_processes_may_fill_the_cache_at_once_and_a_third_reads_it(tmp_path: Path) -> None:
    for process in [_start(tmp_path) for _ in range(2)]:
        _finish(process)
    files = _data_files(tmp_path)
    assert len(files) == 1
    _finish(_start(tmp_path))
    assert _data_files(tmp_path) == files


@pytest.mark.parametrize("content", [b"", b"no machine code"])
def test_a_broken_cache_is_compiled_around(content: bytes, tmp_path: Path) -> None:
    _finish(_start(tmp_path))
    for path in _data_files(tmp_path):
        path.write_bytes(content)
    _finish(_start(tmp_path))


def test_without_a_writable_place_kernels_still_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    _finish(_start(tmp_path / "file" / "cache"))
    assert not list(tmp_path.rglob("*.nb?"))


def test_the_cache_is_keyed_by_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "__file__", str(tmp_path / "compile.py"))
    (tmp_path / "one.py").write_text("a = 1")
    before = compile_module._sources_digest()
    (tmp_path / "two.py").write_text("b = 1")
    both = compile_module._sources_digest()
    (tmp_path / "two.py").write_text("b = 2")
    assert len({before, both, compile_module._sources_digest()}) == 3
