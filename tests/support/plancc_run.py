"""planrun as a process, with the fake backend beside the real ones.

python -P tests/support/plancc_run.py PLAN --prompt ...
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import plancc.ir
from plancc.executor.backends import BACKENDS
from plancc.executor.cli import planrun
from plancc.executor.preflight import Machine
from plancc.ir.command import exit_code_of

SUPPORT = Path(__file__).resolve().parent
ROOM = Path(plancc.ir.__file__).parents[2]
FAKE = {"fake": "plancc_fake_backend:FakeBackend"}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """What a planrun of this checkout needs to find itself and the fake backend."""
    return os.environ | {"PYTHONPATH": f"{ROOM}{os.pathsep}{SUPPORT}"} | variables


def start_planrun(
    arguments: Sequence[object], *, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", __file__, *map(str, arguments)],
        env=environment(**(variables or {})), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], timeout_s: float = 120.0) -> Ran:
    out, err = process.communicate(timeout=timeout_s)
    return Ran(process.returncode, out, err)


def chat_planrun(lines: str, *arguments: object) -> Ran:
    """planrun with `lines` typed into it."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, *map(str, arguments)],
        env=environment(), input=lines, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def run_planrun(*arguments: object, **variables: str) -> Ran:
    return finish(start_planrun(arguments, variables=variables))


if __name__ == "__main__":
    sys.exit(
        exit_code_of(
            lambda: planrun.main(standalone_mode=False, obj=Machine(backends={**BACKENDS, **FAKE}))
        )
    )
