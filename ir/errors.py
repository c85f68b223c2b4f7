"""What plancc may tell a user, with the exit code that goes with it.

PlanccError
+-- BadInput          2  a file, field or flag that cannot be read as meant
+-- ClearNo           1  a well-formed question whose answer is no
|   +-- DoesNotFit       no placement holds the model
|   +-- CheckFailed      a plan contradicts its manifest, its topology or itself
|   +-- Stale            the plan and this machine or these weights have parted
|   +-- GapLeft          a plan was found, its optimum was not proven
+-- RunFailed         3  a run that had begun could not be finished

Bugs of ours are assertions, never one of these.
"""


class PlanccError(Exception):
    """Base of every error that is shown to a user without a traceback."""

    exit_code = 2


class BadInput(PlanccError):
    """Names what was asked, what was found, where, and what to do."""


class ClearNo(PlanccError):
    exit_code = 1


class DoesNotFit(ClearNo):
    """`report` holds the numbers behind the message, for `--json` (plain data)."""

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


class CheckFailed(ClearNo):
    """Carries every problem found, one line each."""

    def __init__(self, problems: tuple[str, ...], what: str = "check failed") -> None:
        super().__init__("\n".join((f"{what}: {len(problems)} problem(s)", *problems)))
        self.problems = problems


class Stale(CheckFailed):
    """The plan was right once; each problem gives both values."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(problems, what="refused before any memory was taken")


class GapLeft(ClearNo):
    pass


class RunFailed(PlanccError):
    exit_code = 3
