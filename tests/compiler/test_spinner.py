"""Waiting is shown only where someone looks."""

import io
import sys
import time

import pytest

from plancc.compiler import spinner as spinner_module
from plancc.compiler.spinner import spinner


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
