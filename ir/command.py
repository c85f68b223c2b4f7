"""From an exception to an exit code: the one place where a command ends."""

import sys
import traceback
from collections.abc import Callable

import click

from plancc.ir.errors import PlanccError
from plancc.ir.terminal import say

BROKEN, INTERRUPTED = 3, 130


def run_command(command: click.Command) -> None:
    """Run a click command and exit: 0 yes, 1 a clear no, 2 bad input, 3 run failed, 130 Ctrl-C.

    Errors meant for users go to stderr without a traceback; bugs keep theirs, and exit with 3: a
    crash is no answer.
    """
    sys.exit(exit_code_of(lambda: command.main(standalone_mode=False)))


def exit_code_of(run: Callable[[], object]) -> int:
    """What `run` ends with; a command may return its own exit code."""
    try:
        result = run()
    except PlanccError as error:
        say(f"error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our stdout has gone, as `head` does
        sys.stdout = None
        return 0
    except Exception:
        traceback.print_exc()
        return BROKEN
    return result if isinstance(result, int) else 0
