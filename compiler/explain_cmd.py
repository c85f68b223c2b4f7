"""plancc explain: why this plan, and what would change it."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plancc.compiler.explain import Explanation, explain
from plancc.compiler.pins import pins_of, row_of_pins
from plancc.compiler.plan_cmd import warn_if_edited
from plancc.compiler.spinner import spinner
from plancc.ir.errors import BadInput
from plancc.ir.plan import Input, Plan, read_plan

if TYPE_CHECKING:
    from plancc.compiler.explain_sensitivity import Progress, Sensitivity
    from plancc.ir.topology import Topology

_PATH = click.Path(path_type=Path)


@click.command("explain")
@click.argument("plan", type=_PATH)
@click.option("--topo", type=_PATH, help="Its topology: also say what would change the plan.")
@click.option("--model", type=_PATH, help="Its manifest, to be sure that it is the same.")
@click.option("--measured", type=_PATH, metavar="REPORT", help="What planrun --bench --report "
              "wrote of this plan: show how far off each prediction was.")  # fmt: skip
@click.option("--quick", is_flag=True, help="With --topo: move layers, but solve nothing anew.")
@click.option("--all", "full", is_flag=True, help="Try every change, where a solve takes long too.")
@click.option("--no-sensitivity", is_flag=True, help="The plan alone, whatever --topo says.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
@click.option("--html", type=_PATH, metavar="FILE", help="The same screen as one HTML file.")
def explain_command(
    plan: Path, topo: Path | None, model: Path | None, measured: Path | None, quick: bool,
    full: bool, no_sensitivity: bool, as_json: bool, html: Path | None,
) -> None:  # fmt: skip
    """Say why PLAN is as it is: one step as a picture, what binds each device, what lost.

    With --topo: what one layer moved, a rate 10 % off or 1 GiB more would do, and which of them
    would flip the plan to another shape. With --measured: what a run took, part by part.
    """
    if measured is not None and topo is not None:
        raise click.UsageError("--measured compares a run with the plan: --topo has no part in it")
    document = read_plan(plan)
    warn_if_edited(document, plan)
    _same_model(document, model)
    if measured is not None:
        _compare(document, plan, measured, as_json, html)
        return
    if topo is None or no_sensitivity:
        _deliver(document, explain(document), as_json, html)
        return
    topology = _topology(document, topo)
    if not quick:
        document = _with_free_choice(document, topology)
    found = _sensitivity(document, topology, is_quick=quick, is_full=full)
    _deliver(document, replace(explain(document), sensitivity=found), as_json, html)


def _deliver(plan: Plan, answer: Explanation, as_json: bool, html: Path | None) -> None:
    if as_json:
        click.echo(json.dumps(_data(plan, answer), indent=2))
    else:
        _draw(plan, answer, html)


def _compare(plan: Plan, path: Path, measured: Path, as_json: bool, html: Path | None) -> None:
    from plancc.compiler.explain_furthest import measured_data
    from plancc.compiler.measured_report import read_measured

    report = read_measured(measured, plan, path)
    if as_json:
        click.echo(json.dumps({"measured": measured_data(plan, report)}, indent=2))
        return
    from rich.console import Console

    from plancc.compiler.render_measured import measured_html, show_measured

    if html is None:
        show_measured(plan, report, Console(highlight=False))
        return
    from plancc.ir.files import write_whole

    write_whole(html, measured_html(plan, report))


def _data(plan: Plan, answer: Explanation) -> dict[str, Any]:
    rows = [row.model_dump(mode="json") for row in plan.alternatives]
    proof = plan.provenance.solver.model_dump(mode="json")
    return {**asdict(answer), "reasons": dict(answer.reasons), "proof": proof, "alternatives": rows}


def _same_model(plan: Plan, path: Path | None) -> None:
    if path is None:
        return
    from plancc.ir.manifest import read_manifest

    _same(f"--model {path}", plan.inputs.model, read_manifest(path).digest())


def _same(what: str, wanted: Input, found: str) -> None:
    if wanted.sha256 != found:
        raise BadInput(
            f"{what}: the plan was compiled for {wanted.name} {wanted.sha256}, found {found}; "
            f"give that file, or compile again"
        )


def _topology(plan: Plan, path: Path) -> "Topology":
    from plancc.ir.topology import read_topology

    topology = read_topology(path)
    _same(f"--topo {path}", plan.inputs.topology, topology.digest())
    return topology


def _with_free_choice(plan: Plan, topology: "Topology") -> Plan:
    """What pins cost, solved now where compiling had no time for it."""
    if row_of_pins(plan) is not None or not pins_of(plan.ask):
        return plan
    from plancc.compiler.explain_price import placement_of
    from plancc.compiler.free_choice import free_row

    with spinner("solving without the pins"):
        stages = placement_of(plan).stages
        row = free_row(plan.model, topology, plan.ask, stages, is_patient=True)
    rows = plan.alternatives if row is None else (*plan.alternatives, row)
    return plan.model_copy(update={"alternatives": rows})


def _sensitivity(
    plan: Plan, topology: "Topology", *, is_quick: bool, is_full: bool
) -> "Sensitivity":
    from plancc.compiler.explain_sensitivity import sensitivity

    with _bar("solving what could be different") as progress:
        return sensitivity(plan, topology, is_quick=is_quick, is_full=is_full, progress=progress)


@contextmanager
def _bar(words: str) -> Iterator["Progress"]:
    """A bar of solves on stderr, gone when they are done; silent where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _draw(plan: Plan, answer: Explanation, html: Path | None) -> None:
    from rich.console import Console

    from plancc.compiler.render_explain import show_explanation

    if html is None:
        show_explanation(plan, answer, Console(highlight=False))
        return
    from plancc.compiler.render_explain import explanation_html
    from plancc.ir.files import write_whole

    write_whole(html, explanation_html(plan, answer))
