"""A plan diff as text: first whether answers can change, then what moved and what it costs."""

from collections.abc import Iterator

import click

from plancc.compiler.diff import PlanDiff
from plancc.ir.terminal import wrapped

NO_CHANGES = "No changes."


def diff_lines(diff: PlanDiff, screen: int | None = None) -> Iterator[str]:
    """Lines with colour; click leaves the colour out where nobody would see it.

    Within `screen` columns; None: one fact a line, however long.
    """
    if diff.is_empty:
        yield NO_CHANGES
        return
    answers = diff.answers
    colour = "red" if answers.reasons else "yellow" if not answers.is_known else "green"
    yield click.style(wrapped(answers.words(), screen), fg=colour, bold=True)
    width = max(len(section.title) for section in diff.sections)
    room = None if screen is None else screen - width - 4
    for section in diff.sections:
        lines = wrapped("\n".join(section.lines), room).split("\n")
        titles = [section.title] + [""] * (len(lines) - 1)
        for title, line in zip(titles, lines, strict=True):
            yield f"  {click.style(title.ljust(width), dim=True)}  {line}"
