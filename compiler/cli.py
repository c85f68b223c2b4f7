"""plancc: decides where a language model runs. Each command is imported only when it is called."""

import gc
import importlib

import click

from plancc.ir.command import run_command
from plancc.ir.version import VERSION

# command -> (module, attribute, what `plancc --help` says of it)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "manifest": (
        "plancc.compiler.manifest_cmd",
        "manifest_command",
        "Write the manifest of a model folder.",
    ),
    "import-gguf": (
        "plancc.compiler.manifest_cmd",
        "import_gguf_command",
        "Turn a GGUF file into a model folder.",
    ),
    "compile": (
        "plancc.compiler.compile_cmd",
        "compile_command",
        "Decide where a model runs, prove it, freeze it in a plan.",
    ),
    "show": ("plancc.compiler.plan_cmd", "show_command", "Show a plan: devices, stages, proof."),
    "explain": (
        "plancc.compiler.explain_cmd",
        "explain_command",
        "Say why a plan is as it is, and what would change it.",
    ),
    "check": (
        "plancc.compiler.plan_cmd",
        "check_command",
        "Recompute a plan from its manifest and topology.",
    ),
    "diff": ("plancc.compiler.plan_cmd", "diff_command", "Say in words how two plans differ."),
    "schema": ("plancc.compiler.plan_cmd", "schema_command", "Print a document's JSON Schema."),
}


class LazyGroup(click.Group):
    """Commands by name; only the called one pays for its imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        gc.disable()  # what an import makes stays: looking for garbage is a tenth of `show`
        command = getattr(importlib.import_module(module), attribute)
        gc.freeze()
        gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="plancc")
def plancc() -> None:
    """Decide where a language model runs, and freeze the decision in a plan to review.

    Exit codes: 0 yes, 1 a clear no, 2 bad input, 130 interrupted.
    """


def main() -> None:
    run_command(plancc)
