"""plancc compile: manifest and topology in, a frozen plan or a clear no with numbers out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from plancc.compiler.api import compile_passes
from plancc.compiler.ask_flags import ask_from_flags
from plancc.compiler.compilation import Compilation
from plancc.compiler.explain_words import pins_sentence
from plancc.compiler.freeze import portable_source
from plancc.compiler.pipeline import PASS_NAMES
from plancc.compiler.spinner import spinner
from plancc.compiler.summary import (
    has_idle_rows,
    idle_rows_sentence,
    summary_data,
    summary_lines,
)
from plancc.ir.errors import BadInput, ClearNo, DoesNotFit
from plancc.ir.files import write_whole
from plancc.ir.graph_text import graph_text
from plancc.ir.manifest import ModelManifest, read_manifest
from plancc.ir.plan import Plan
from plancc.ir.terminal import say
from plancc.ir.topology import read_topology

STDOUT = "-"
_PASS = click.Choice(PASS_NAMES)

ASK_OPTIONS = (
    click.option("--context", type=int, help="Tokens a slot. [min(max_context, 8192)]"),
    click.option("--slots", type=int, help="Requests held at once. [1, or streams]"),
    click.option("--prefill-chunk", type=int, help="Prompt rows a step. [512]"),
    click.option(
        "--prompt",
        type=int,
        help="Tokens, for prefill time. [the workload's, or min(4096, context)]",
    ),
    click.option(
        "--objective",
        type=click.Choice(["latency", "throughput", "prefill", "context"]),
        help="What to optimise. [latency]",
    ),
    click.option(
        "--workload",
        metavar="prompt=N,output=N[,streams=N]",
        help="Optimise what one such request takes, so many at once.",
    ),
    click.option("--kv-dtype", metavar="DTYPE", help="Of the KV cache. [the model's]"),
    click.option("--devices", metavar="A,B", help="Only these, in this order; may repeat."),
    click.option("--max-devices", type=int, help="At most so many devices."),
    click.option("--stage-layers", metavar="N,N", help="Layers of each stage."),
    click.option("--tp", metavar="auto|off|N", help="Cut MLPs over a group. [auto]"),
    click.option("--pin", multiple=True, metavar="BLOCK=DEVICE", help="Repeatable."),
    click.option("--head", type=click.Choice(["first", "last", "auto"]), help="[auto]"),
    click.option("--without", multiple=True, metavar="BLOCK", help="Leave a block out."),
    click.option(
        "--workers",
        type=click.Choice(["host", "device"]),
        help="One process a host and kind, or one a device. [host]",
    ),
    click.option("--margin", metavar="3%", help="Slower by this is worth fewer devices. [3%]"),
    click.option("--accept-gap", is_flag=True, default=None, help="Also without a proof."),
)


def with_options(options: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("topo", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="PLAN", help="The plan file; - for stdout.")
@with_options(ASK_OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON on stdout.")
@click.option("--print-after", type=click.Choice([*PASS_NAMES, "all"]), help="Print the graph.")
@click.option("--stop-after", type=_PASS, help="Print the graph after a pass, write no plan.")
def compile_command(
    model: Path,
    topo: Path,
    output: str | None,
    as_json: bool,
    print_after: str | None,
    stop_after: str | None,
    **flags: Any,
) -> None:
    """Decide where MODEL runs on TOPO, prove it, and freeze it in a plan.

    Exit 1, and no file written, when it does not fit.
    """
    ask = ask_from_flags(flags)
    _one_stdout(output, as_json, print_after or stop_after, stop_after)
    manifest, topology = read_manifest(model), read_topology(topo)
    observe = _printer(print_after, stop_after)
    words = f"placing {manifest.name} on {topology.name}"
    try:
        with spinner(words):
            state = compile_passes(manifest, topology, ask, stop_after=stop_after, observe=observe)
    except ClearNo as error:
        if as_json:
            _print_no(error)
        raise
    if state.plan is not None and stop_after is None:
        _deliver(state.plan, manifest, output, as_json)


def _one_stdout(output: str | None, as_json: bool, dumps: str | None, stop: str | None) -> None:
    """Only one thing may go to stdout, and a plan must go somewhere."""
    claims = {
        "-o -": output == STDOUT,
        "--json": as_json,
        "--print-after and --stop-after": dumps is not None,
    }
    takers = [name for name, claimed in claims.items() if claimed]
    if len(takers) > 1:
        raise BadInput(f"{' and '.join(takers)}: both print to stdout; choose one")
    if output is None and not as_json and stop is None:
        raise BadInput("-o PLAN is missing: where to write the plan (- for stdout)")


def _printer(print_after: str | None, stop_after: str | None) -> Callable[[str, Compilation], None]:
    wanted = print_after or stop_after

    def observe(name: str, state: Compilation) -> None:
        if wanted in (name, "all"):
            click.echo(f"# after {name}\n{graph_text(state.graph)}", nl=False)

    return observe


def _deliver(plan: Plan, manifest: ModelManifest, output: str | None, as_json: bool) -> None:
    if output == STDOUT:
        click.echo(plan.to_json(), nl=False)
    elif output is not None:
        write_whole(Path(output), plan.to_json())
    if as_json:
        answer = {"ok": True, "file": output, **summary_data(plan)}
        click.echo(json.dumps(answer if output else {**answer, "plan": plan.data()}, indent=2))
    if manifest.weights is not None and manifest.source != portable_source(manifest.source):
        say(f"note: the manifest's source {manifest.source} is absolute and stays out of the "
            f"plan; give planrun --weights DIR", err=True)  # fmt: skip
    if has_idle_rows(plan):
        say(f"note: {idle_rows_sentence(plan)}", err=True)
    pins = pins_sentence(plan)
    for line in (*summary_lines(plan, output), *([f"pins: {pins}"] if pins else [])):
        say(line, err=True)


def _print_no(error: ClearNo) -> None:
    report = error.report if isinstance(error, DoesNotFit) else None
    click.echo(json.dumps({"ok": False, "error": str(error), "report": report}, indent=2))
