"""A result is written whole or not at all; waiting is shown only where someone looks."""

import io
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from plancc.compiler import spinner as spinner_module
from plancc.compiler.files import write_whole
from plancc.compiler.spinner import spinner
from plancc.ir.errors import BadInput


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["plan.json"]


def test_a_written_file_has_the_rights_that_a_new_file_has(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "text\n")
    (tmp_path / "b").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
    assert modes[0] == modes[1]
    assert (tmp_path / "a").read_bytes() == b"text\n"


@pytest.mark.parametrize("name", [".", "absent/plan.json"])
def test_where_nothing_can_be_written_is_bad_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=str(tmp_path)):
        write_whole(tmp_path / name, "text")


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize(("is_terminal", "patience", "shown"), [
    (True, 0.0, True), (True, 60.0, False), (False, 0.0, False),
])  # fmt: skip
def test_only_a_long_wait_at_a_terminal_is_shown(
    is_terminal: bool, patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(spinner_module, "PATIENCE_S", patience)
    monkeypatch.setenv("TERM", "xterm")
    with spinner("placing tiny"):
        deadline = time.monotonic() + (20.0 if shown else 0.3)
        while "placing" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert ("placing tiny" in screen.getvalue()) == shown
