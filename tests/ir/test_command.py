"""Which exit code a command ends with: a crash is never taken for an answer."""

import click
import pytest

from plancc.ir.command import exit_code_of
from plancc.ir.errors import BadInput, ClearNo, RunFailed


def raising(error: BaseException) -> int:
    def run() -> object:
        raise error

    return exit_code_of(run)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClearNo("no"), 1),
        (BadInput("what"), 2),
        (click.UsageError("how"), 2),
        (RunFailed("lost"), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_what_users_are_told_has_no_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdout", None)  # which a broken pipe closes
    assert raising(error) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("error", [AssertionError("a bug"), KeyError("a bug"), OSError("a bug")])
def test_a_bug_keeps_its_traceback_and_is_no_clear_no(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == 3
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert "a bug" in said
