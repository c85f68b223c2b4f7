"""The report of --bench: medians of several runs, the parts of a step, and on what machine."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from plancc.executor.measure import percentile, run_report
from plancc.executor.request import Outcome, RankReport
from plancc.executor.session import LoadSummary
from plancc.ir.plan import Plan
from plancc.ir.version import VERSION

_RUN_FIELDS = ("prefill_seconds", "prefill_tokens_per_s", "seconds", "tokens_per_s", "p50_ms",
               "p95_ms")  # fmt: skip


def bench_report(
    plan: Plan,
    load: LoadSummary,
    prompt_tokens: int,
    outcomes: Sequence[Outcome],
    timed: Outcome,
    reports: Mapping[int, RankReport],
) -> dict[str, Any]:
    """Plain data; run_report's, where `prefill` and `decode` are medians over the runs.

    The parts (`stages`, `hops`) are of the run `timed`, whose clocks may cost time.
    """
    whole = [run_report(plan, load, outcome, prompt_tokens, reports) for outcome in outcomes]
    runs = [_figures(report) for report in whole]
    middle = {name: median(run[name] for run in runs) for name in _RUN_FIELDS}
    report = whole[0]
    decode = {name: middle[name] for name in ("seconds", "tokens_per_s", "p50_ms", "p95_ms")}
    prefill = {name: middle[f"prefill_{name}"] for name in ("seconds", "tokens_per_s")}
    return report | {
        "machine": _machine(plan, reports),
        "prefill": report["prefill"] | prefill,
        "decode": report["decode"] | decode,
        "repeat": len(runs),
        "runs": runs,
        "timed": {
            "steps": len(timed.decode_ns),
            "p50_ms": percentile(timed.decode_ns, 50) / 1e6,
        },
    }


def _figures(report: Mapping[str, Any]) -> dict[str, float]:
    """One run's."""
    prefill, decode = report["prefill"], report["decode"]
    both = {f"prefill_{name}": value for name, value in prefill.items()} | decode
    return {name: both[name] for name in _RUN_FIELDS}


def _machine(plan: Plan, reports: Mapping[int, RankReport]) -> dict[str, Any]:
    """Of the host that planrun was started on; devices by what their backend calls them."""
    found = {program.device: reports[program.rank].device_name for program in plan.programs}
    return {
        "plancc": VERSION,
        "python": platform.python_version(),
        "torch": _torch_version(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "devices": {device: name for device, name in found.items() if name},
    }


def _torch_version() -> str:
    """As installed: the launcher does not import it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
