"""A plan diff as text: first whether answers can change, then what moved and what it costs."""

from collections.abc import Iterator

import click

from plancc.compiler.diff import PlanDiff

NO_CHANGES = "No changes."


def diff_lines(diff: PlanDiff) -> Iterator[str]:
    """Lines with colour; click leaves the colour out where nobody would see it."""
    if diff.is_empty:
        yield NO_CHANGES
        return
    answers = diff.answers
    colour = "red" if answers.reasons else "yellow" if not answers.is_known else "green"
    yield click.style(answers.words(), fg=colour, bold=True)
    width = max(len(section.title) for section in diff.sections)
    for section in diff.sections:
        titles = [section.title] + [""] * (len(section.lines) - 1)
        for title, line in zip(titles, section.lines, strict=True):
            yield f"  {click.style(title.ljust(width), dim=True)}  {line}"
