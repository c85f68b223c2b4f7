"""Long lines: broken between words at a terminal, whole everywhere else."""

import os
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from plancc.ir.command import exit_code_of
from plancc.ir.errors import BadInput
from plancc.ir.terminal import NARROWEST, width_of, wrapped

LONG = "  gpu0: needs " + ", ".join(f"part{i} {i}.00 GiB" for i in range(12)) + ": 1.00 GiB short"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """(the end that reads, a stream to a terminal of 72 columns)."""
    monkeypatch.delenv("COLUMNS", raising=False)
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (24, 72))
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
    os.close(reader)


def test_a_line_that_fits_and_one_for_no_terminal_stay_as_they_are() -> None:
    assert wrapped(f"short\n{LONG}\n", None) == f"short\n{LONG}\n"
    assert wrapped("a  b\n\n  c\n", 80) == "a  b\n\n  c\n"


@pytest.mark.parametrize("width", [NARROWEST, 72, 80, 100])
def test_a_long_line_keeps_its_words_and_its_indent(width: int) -> None:
    lines = wrapped(f"error: no\n{LONG}", width).split("\n")
    assert lines[0] == "error: no"
    assert max(map(len, lines)) <= width
    assert len(lines) > 2
    assert lines[1].startswith("  gpu0")
    assert all(line.startswith("    ") and line[4] != " " for line in lines[2:])
    assert " ".join(lines[1:]).split() == LONG.split()


def test_a_word_that_is_too_long_stays_whole() -> None:
    path = "/" + "x" * 99
    assert path in wrapped(f"error: {path}: no such file", 60).split("\n")[1]


@pytest.mark.parametrize("width", range(NARROWEST, 80))
def test_a_number_keeps_its_unit(width: int) -> None:
    parts = ", ".join(f"{i} slots or {i}.5 MiB in {i} ms at 9 %" for i in range(9))
    for line in wrapped(parts, width).split("\n"):
        assert not line.lstrip().startswith(("MiB", "ms", "%"))
        assert len(line) <= width


def test_a_terminal_says_its_width_and_columns_win(
    terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert width_of(terminal[1]) == 72
    monkeypatch.setenv("COLUMNS", "55")
    assert width_of(terminal[1]) == 55


def test_a_pipe_and_no_stream_have_none() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as stream:
        assert width_of(stream) is None
    assert width_of(None) is None


def test_what_a_command_refuses_is_wrapped_at_a_terminal(
    terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> object:
        raise BadInput(f"does not fit\n{LONG}")

    reader, stream = terminal
    monkeypatch.setattr("sys.stderr", stream)
    assert exit_code_of(refuse) == 2
    stream.flush()
    lines = os.read(reader, 4096).decode().splitlines()
    assert max(map(len, lines)) <= 72
    assert len(lines) > 3


def test_what_a_command_refuses_goes_whole_into_a_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> object:
        raise BadInput(f"does not fit\n{LONG}")

    exit_code_of(refuse)
    assert capsys.readouterr().err.splitlines()[1] == LONG
