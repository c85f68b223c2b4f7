"""planrun: runs a plan exactly as it says. It never decides, and never imports the compiler."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plancc.executor.options import Options, flags_problem
from plancc.executor.preflight import Machine, Passed, preflight
from plancc.executor.sampling import Sampling
from plancc.ir.command import run_command
from plancc.ir.errors import PlanccError
from plancc.ir.plan import read_plan
from plancc.ir.version import VERSION

if TYPE_CHECKING:
    from plancc.executor.tasks import Task

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("plan", type=_FILE)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="Answer TEXT, through the model's chat template if it has one. --bench and "
    "--verify take it in place of ids that mean nothing; --verify takes several.",
)
@click.option("--weights", type=_FOLDER, help="Folder of safetensors and tokenizer; else "
              "$PLANCC_WEIGHTS/NAME, else the manifest's source beside the plan.")  # fmt: skip
@click.option("--max-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="0 keeps every token.")
@click.option("--top-p", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--raw", is_flag=True, help="The prompt as it is, without the chat template.")
@click.option("--system", metavar="TEXT", help="A system turn before the prompt or the chat.")
@click.option("--chat", is_flag=True, help="A conversation at the terminal.")
@click.option("--bench", is_flag=True, help="Measure speed and memory, beside the prediction.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True,
              help="--bench's runs; it tells their medians.")  # fmt: skip
@click.option("--prompt-tokens", type=click.IntRange(min=1), help="Length of --bench's prompt, "
              "which means nothing; without it, as the plan predicts.")  # fmt: skip
@click.option("--verify", type=_FILE, metavar="ALT", help="Run this plan of the same model too, "
              "and tell the first difference of logits, tokens and KV; or how far apart they are, "
              "where formats or kinds of device differ.")  # fmt: skip
@click.option("--alt-weights", type=_FOLDER, help="--weights of ALT, where they are others.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--dry-run", is_flag=True, help="Only check that plan, weights and machine match.")
@click.option("--record", type=_FILE, help="Write digests of logits and KV as JSON lines.")
@click.option("--report", type=_FILE, help="Write --bench's numbers as JSON.")
@click.option("--verbose", is_flag=True, help="Say more on stderr: stray files, pids, worker logs.")
@click.version_option(VERSION, prog_name="planrun")
@click.pass_obj
def planrun(
    machine: Machine | None, /, temperature: float, top_k: int, top_p: float, seed: int,
    **flags: object,
) -> int:  # fmt: skip
    """Run PLAN on this machine."""
    sampling = Sampling(temperature, top_k, top_p, seed)
    options = Options(sampling=sampling, **flags)  # type: ignore[arg-type]
    if words := flags_problem(options):
        raise click.UsageError(words)
    try:
        return run(options, machine or Machine())
    except BrokenPipeError:  # the reader of our stdout has gone, as `head` does; click would say 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(options: Options, machine: Machine) -> int:
    """Check everything, then start the workers and serve what was asked. The exit code."""
    passed = _check(options.plan, options.weights, options, machine)
    other = _check_other(passed, options, machine)
    if options.dry_run:
        words = f"{options.plan}: plan, weights and machine match; nothing was started"
        data = {"ok": True, "plan": passed.plan.digest, "weights": passed.weights.sha256,
                "warnings": passed.warnings, "notes": passed.notes}  # fmt: skip
        click.echo(json.dumps(data) if options.as_json else words)
        return 0
    if other is not None:
        from plancc.executor.verify_cmd import run_verify

        return run_verify(options, passed, other, partial(_serve, options, machine))
    from plancc.executor.tasks import prepare

    task = prepare(options, passed)  # whatever is wrong with the prompt is said first
    _serve(options, machine, options.plan, passed, task)
    return 0


def _check_other(passed: Passed, options: Options, machine: Machine) -> Passed | None:
    """The plan of --verify. --weights are its own too where both plans were made for the same."""
    if options.verify is None:
        return None
    from plancc.executor.verify_models import refuse_other_weights, refuse_two_models

    folder, plan = options.alt_weights, read_plan(options.verify)
    refuse_two_models(passed.plan, plan)
    if folder is None and plan.weights and plan.weights.sha256 == passed.weights.sha256:
        folder = passed.weights.folder
    other = _check(options.verify, folder, options, machine)
    refuse_other_weights(passed, other, may_differ=options.alt_weights is not None)
    return other


def _check(path: Path, asked: Path | None, options: Options, machine: Machine) -> Passed:
    from plancc.executor.screen import hash_bar, notes

    console = notes()
    with hash_bar() as on_hashed:
        passed = preflight(path, asked, os.environ, machine, on_hashed)
    for warning in passed.warnings:
        console.print(f"warning: {warning}", markup=False)
    if options.verbose or options.dry_run:
        for note in passed.notes:
            console.print(f"note: {note}", markup=False)
    if options.verbose:
        for name in passed.weights.strays:
            console.print(f"note: {passed.weights.folder / name} is not part of the model",
                          markup=False)  # fmt: skip
    return passed


def _serve(options: Options, machine: Machine, path: Path, passed: Passed, task: "Task") -> None:
    """Start the workers of a plan, have the task done, and end them."""
    from plancc.executor.fleet import Fleet
    from plancc.executor.screen import load_bars, notes
    from plancc.executor.session import Session

    fleet = Fleet(passed.plan, path, passed.weights, machine.backends)
    try:
        with fleet:
            if options.verbose:
                for member in fleet.members:
                    notes().print(f"started {member.name}", markup=False)
            session = Session(fleet)
            with load_bars(passed.plan, passed.weights) as on_load:
                load = session.bring_up(on_load)
            task(session, load)
    except PlanccError:
        if options.verbose:
            for name, text in fleet.logs.items():
                notes().print(f"--- {name} wrote:\n{text}", markup=False)
        raise


def main() -> None:
    run_command(planrun)


if __name__ == "__main__":
    main()
