"""How long plancc takes, as a whole process from cold: one JSON line on stdout.

    python -P tests/bench/compile_time.py [--seeds 5] [--only TP] [--long] [--limit 120]
    python -P tests/bench/compile_time.py --curve [--seeds 3]

Wall seconds and the user CPU seconds of the child, which other work on the machine hardly moves.
A run that reaches the limit is ended, counted in `timed_out`, and stands in the figures with the
seconds it had, so that they are lower bounds there. --curve times layers against devices, with and
without TP groups, and draws docs/compile_times.svg. Nothing is asserted: figures are for people,
with the machine and the commit that they belong to.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from plancc_compile_curve import draw
from plancc_unequal_files import question

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "from plancc.compiler.cli import main; main()"
PLOT = ROOT / "docs" / "compile_times.svg"
CURVE_LAYERS, CURVE_DEVICES = (16, 32, 64, 80, 128), (2, 4, 6, 8)
CURVE_TP = {"pipelines (--tp off)": "off", "with TP groups (--tp auto)": "auto"}
FEW = 3  # runs of a case that has no seeds
Run = dict[str, Any]
Case = Callable[[], Iterable[Run]]


def main() -> None:
    flags = _flags()
    with tempfile.TemporaryDirectory() as folder:
        timed = _curve if flags.curve else _cases
        print(json.dumps(_machine() | timed(Path(folder), flags)))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="generated instances a size [5]")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with it in their name")
    parser.add_argument("--long", action="store_true", help="128 layers, and 16 devices, too")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a run [120]")
    parser.add_argument("--curve", action="store_true", help=f"draw {PLOT.relative_to(ROOT)}")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    return {"cpu": _cpu_model(), "cores": os.cpu_count(), "python": platform.python_version(),
            "commit": _commit(), "load": round(os.getloadavg()[0], 1)}  # fmt: skip


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _cases(folder: Path, flags: argparse.Namespace) -> dict[str, Any]:
    """Summaries by name; a case is run only when its turn comes."""
    cases = _example_cases(folder, flags) | _generated_cases(folder, flags)
    found = {}
    for name, case in cases.items():
        if flags.only in name:
            print(name, file=sys.stderr)
            found[name] = _summary(list(case()))
    return {"limit_s": flags.limit, "cases": found}


def _example_cases(folder: Path, flags: argparse.Namespace) -> dict[str, Case]:
    models, topologies = ROOT / "plans" / "models", ROOT / "plans" / "topologies"
    pair = (models / "llama-3.1-70b.yaml", topologies / "mixed-8.yaml")
    plan = folder / "a.plan.json"

    def compiled(tp: str) -> Case:
        return lambda: (_compile(pair, plan, tp, flags.limit) for _ in range(FEW))

    def read(*words: object) -> Case:
        def case() -> Iterable[Run]:
            if not plan.exists():
                _compile(pair, plan, "off", flags.limit)
            return (_plancc(flags.limit, *words) for _ in range(FEW))

        return case

    return {
        "70b on mixed-8, TP": compiled("auto"),
        "70b on mixed-8, pipelines": compiled("off"),
        "show": read("show", plan),
        "diff": read("diff", plan, plan),
    }


def _generated_cases(folder: Path, flags: argparse.Namespace) -> dict[str, Case]:
    """Unequal layers everywhere; equal devices may form groups of eight, unequal ones of four."""

    def case(layers: int, devices: int, tp: str, equal: bool) -> Case:
        def runs() -> Iterable[Run]:
            for seed in range(flags.seeds):
                pair = question(folder, layers, devices, seed, equal=equal)
                yield _compile(pair, folder / "b.plan.json", tp, flags.limit)

        return runs

    long = flags.long
    sizes = [
        *((80, 8, tp, False) for tp in ("off", "auto")),
        *((layers, 8, "auto", True) for layers in (32, 80, 128)),
        *((128, 8, tp, False) for tp in ("off", "auto") if long),
        *((128, 16, "off", False) for _ in range(long)),
    ]
    return {_name(*size): case(*size) for size in sizes}


def _name(layers: int, devices: int, tp: str, equal: bool) -> str:
    kind, what = ("equal" if equal else "unequal"), ("pipelines" if tp == "off" else "TP")
    return f"{layers} unequal layers on {devices} {kind} devices, {what}"


def _curve(folder: Path, flags: argparse.Namespace) -> dict[str, Any]:
    """Times of every size, drawn; each seed's wall and user seconds."""
    points = []
    for title, tp in CURVE_TP.items():
        for devices in CURVE_DEVICES:
            for layers in CURVE_LAYERS:
                print(f"{title}: {layers} layers, {devices} devices", file=sys.stderr)
                pairs = [question(folder, layers, devices, seed) for seed in range(flags.seeds)]
                runs = [_compile(pair, folder / "c.plan.json", tp, flags.limit) for pair in pairs]
                size = {"what": title, "layers": layers, "devices": devices}
                each = {"each_user_s": [run["user"] for run in runs]}
                points.append(size | _summary(runs) | each)
    draw(points, PLOT)
    return {"limit_s": flags.limit, "curve": points}


def _compile(pair: tuple[Path, Path], plan: Path, tp: str, limit: float) -> Run:
    return _plancc(limit, "compile", *pair, "--tp", tp, "-o", plan)


def _plancc(limit: float, *words: object) -> Run:
    """Wall and user CPU seconds of one run, and its exit code; None where the limit ended it."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    command = [sys.executable, "-P", "-c", ENTRY, *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=limit)
        code: int | None = done.returncode
    except subprocess.TimeoutExpired:
        code = None
    wall = time.perf_counter() - start
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {"wall": round(wall, 2), "user": round(user, 2), "code": code}


def _summary(runs: list[Run]) -> dict[str, Any]:
    wall, user = [row["wall"] for row in runs], [row["user"] for row in runs]
    return {
        "runs": len(runs),
        "exit_codes": sorted({row["code"] for row in runs if row["code"] is not None}),
        "timed_out": sum(row["code"] is None for row in runs),
        "wall_s": {"median": round(median(wall), 2), "worst": max(wall)},
        "user_s": {"median": round(median(user), 2), "worst": max(user)},
    }


if __name__ == "__main__":
    main()
