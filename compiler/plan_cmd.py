"""plancc show, check, diff, schema: commands that read plans and decide nothing."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from plancc.ir.errors import CheckFailed
from plancc.ir.plan import Plan, read_plan
from plancc.ir.terminal import say, width_of

_PATH = click.Path(path_type=Path)


@click.command("show")
@click.argument("plan", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="The plan and what is wrong with its digest.")
@click.option("--textconv", is_flag=True, help="One fact a line, for git diff; see README.")
def show_command(plan: Path, as_json: bool, textconv: bool) -> None:
    """Show PLAN: devices and what fills them, stages, predicted times, proof, what lost."""
    document = read_plan(plan)
    edited = warn_if_edited(document, plan)
    if as_json:
        click.echo(json.dumps({"edited": edited, "plan": document.data()}, indent=2))
    elif textconv:
        from plancc.compiler.render_text import text_lines

        click.echo("\n".join(text_lines(document)))
    else:
        from rich.console import Console

        from plancc.compiler.render_show import show_plan

        show_plan(document, Console(highlight=False))


@click.command("check")
@click.argument("plan", type=_PATH)
@click.option("--model", required=True, type=_PATH, help="The manifest it was compiled from.")
@click.option("--topo", required=True, type=_PATH, help="The topology it was compiled for.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
def check_command(plan: Path, model: Path, topo: Path, as_json: bool) -> None:
    """Recompute PLAN from its files with code that shares nothing with the solver.

    Exit 1, with every problem by its address, when it is not what they say.
    """
    from plancc.compiler.check import check_plan
    from plancc.compiler.summary import count_words
    from plancc.ir.manifest import read_manifest
    from plancc.ir.topology import read_topology

    document = read_plan(plan)
    problems = check_plan(document, read_manifest(model), read_topology(topo))
    if as_json:
        click.echo(json.dumps({"ok": not problems, "problems": problems}, indent=2))
    if problems:
        raise CheckFailed(problems, what=str(plan))
    if not as_json:
        click.echo(
            f"{plan}: sound; {count_words(len(document.stages), 'stage')}, "
            f"{count_words(len(document.devices), 'device')}, bytes, times, links and programs "
            f"recomputed"
        )


@click.command("diff")
@click.argument("old", type=_PATH)
@click.argument("new", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
def diff_command(old: Path, new: Path, as_json: bool) -> int:
    """Say in words what changed from OLD to NEW. Exit 0: nothing; 1: they differ."""
    from plancc.compiler.diff import diff_plans
    from plancc.compiler.render_diff import diff_lines

    before, after = read_plan(old), read_plan(new)
    warn_if_edited(before, old)
    warn_if_edited(after, new)
    diff = diff_plans(before, after)
    if as_json:
        answer = {"differs": not diff.is_empty, "answers": diff.answers.words()}
        click.echo(json.dumps({**answer, **asdict(diff)}, indent=2))
    else:
        click.echo("\n".join(diff_lines(diff, width_of(sys.stdout))))
    return 0 if diff.is_empty else 1


@click.command("schema")
@click.argument("document", type=click.Choice(["model", "topology", "plan"]))
def schema_command(document: str) -> None:
    """Print the JSON Schema of a DOCUMENT's file."""
    from plancc.compiler.schemas import schema_text

    click.echo(schema_text(document), nl=False)


def warn_if_edited(document: Plan, path: Path) -> str | None:
    """The words of the warning on stderr; None for a plan as it was compiled."""
    content = document.computed_digest()
    if document.digest == content:
        return None
    words = f"plan was edited: digest says {document.digest}, content is {content}"
    say(f"warning: {path}: {words}", err=True)
    return words
