"""Long lines at a terminal: broken between words, with what goes on set in by two."""

import os
import re
import sys
import textwrap
from typing import TextIO

import click

NARROWEST = 40  # columns; what a narrower window shows is broken by the terminal itself
USUAL = 80
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]iB|[mu]?s|%)(?![a-z]))")
_GLUE = "\0"  # keeps a number and its unit on one line


def say(text: str, *, err: bool = False) -> None:
    """Print on stdout or stderr: wrapped at a terminal, as it is for files, pipes and programs."""
    click.echo(wrapped(text, width_of(sys.stderr if err else sys.stdout)), err=err)


def width_of(stream: TextIO | None) -> int | None:
    """Columns of the terminal that a stream writes to, COLUMNS where set; None for no terminal."""
    if stream is None or not stream.isatty():
        return None
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL
    except OSError:
        return USUAL


def wrapped(text: str, width: int | None) -> str:
    """Every line within `width` columns where its words allow; None leaves all as it is."""
    if width is None:
        return text
    return "\n".join(_broken(line, max(width, NARROWEST)) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    words = line.lstrip(" ")
    indent = " " * (len(line) - len(words))
    text = textwrap.fill(_BEFORE_UNIT.sub(_GLUE, words), width, initial_indent=indent,
                         subsequent_indent=indent + "  ", break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip
    return text.replace(_GLUE, " ")
