"""The tests run this checkout, by its plancc.* names, and a wheel holds all of it."""

import importlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from plancc.ir.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("compiler", "executor", "ir", "kernels")


def project() -> dict[str, object]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        loaded = tomllib.load(file)["project"]
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("room", ["compiler", "ir"])
def test_a_room_is_that_of_this_checkout(room: str) -> None:
    module = importlib.import_module(f"plancc.{room}")
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_links_to_the_rooms_are_relative_and_hit(room: str) -> None:
    link = ROOT / ".src" / "plancc" / room
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / room


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_under_its_bare_name_is_refused(room: str) -> None:
    """Imported twice under two names, every class would exist twice."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {room}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert done.returncode == 1
    assert f"import plancc.{room}, not {room}" in done.stderr


def test_the_version_is_said_once_in_effect() -> None:
    assert project()["version"] == VERSION


def test_entry_points_exist() -> None:
    scripts = project()["scripts"]
    assert isinstance(scripts, dict)
    for target in scripts.values():
        module, _, function = target.partition(":")
        source = ROOT / Path(*module.split(".")[1:]).with_suffix(".py")
        assert source.exists(), target
        assert f"def {function}(" in source.read_text()


def test_torch_is_not_imported_by_plancc() -> None:
    code = (
        "import sys, plancc.compiler.cli, plancc.compiler.compile_cmd, plancc.compiler.plan_cmd; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'ortools', 'networkx', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_a_wheel_holds_every_source(tmp_path: Path) -> None:
    try:
        importlib.import_module("setuptools.build_meta")
    except ImportError:
        pytest.skip("setuptools is not installed beside the tests, so no wheel is built offline")
    build = (
        "import os, sys; os.chdir(sys.argv[1]); from setuptools import build_meta; "
        "print(build_meta.build_wheel(sys.argv[2]))"
    )
    copy = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    subprocess.run([sys.executable, "-c", build, str(copy), str(tmp_path)],
                   check=True, capture_output=True, timeout=120)  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", *ROOMS], cwd=copy, check=True,
                             capture_output=True, text=True).stdout.split()  # fmt: skip
    wanted = {f"plancc/{name}" for name in tracked if name.endswith((".py", "py.typed"))}
    assert wanted <= held
    tops = {name.split("/")[0] for name in held}
    assert tops == {"plancc", f"plancc-{VERSION}.dist-info"}
