"""--bench: how fast the plan runs here, beside what it predicted, and what it took of memory."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from plancc.executor.measure import run_report
from plancc.executor.messages import Report
from plancc.executor.record import write_text_whole
from plancc.executor.request import Outcome, Request
from plancc.executor.session import LoadSummary, Session
from plancc.ir.errors import BadInput
from plancc.ir.plan import Plan
from plancc.ir.units import format_bytes

_WARM_UP_TOKENS = 8
_DEFAULT_PROMPT = 128


def run_bench(
    session: Session,
    load: LoadSummary,
    request: Request,
    *,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Warm up, measure the answer to a request that no token ends, and tell."""
    few = min(_WARM_UP_TOKENS, request.max_tokens)
    _finish(session, request.model_copy(update={"max_tokens": few}))
    outcome = _finish(session, request)
    reports = session.reports(Report())
    report = run_report(session.fleet.plan, load, outcome, len(request.prompt_ids), reports)
    if report_path is not None:
        write_text_whole(report_path, json.dumps(report, indent=2) + "\n")
    if as_json:
        print(json.dumps(report))
    else:
        _print(report)


def bench_prompt(plan: Plan, max_tokens: int) -> tuple[int, ...]:
    """Ids that mean nothing, as many as the plan predicts a prompt of, if they leave room."""
    context, vocab_size = plan.runtime.context, plan.model.vocab_size or 1
    wanted = plan.predicted.prefill.prompt if plan.predicted.prefill else _DEFAULT_PROMPT
    count = min(wanted, context - max_tokens)
    if count < 1:
        raise BadInput(f"--bench --max-tokens {max_tokens}: the plan's context is {context}: "
                       f"nothing is left for a prompt")  # fmt: skip
    return tuple(7919 * (index + 1) % vocab_size for index in range(count))


def _finish(session: Session, request: Request) -> Outcome:
    *_, outcome = session.generate(request)
    assert isinstance(outcome, Outcome)
    return outcome


def _print(report: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(_speed_table(report), _memory_table(report))


def _speed_table(report: dict[str, Any]) -> Table:
    table = Table("", "measured", "predicted", title=f"{report['model']}: speed", box=None)
    decode, prefill = report["decode"], report["prefill"]
    table.add_row(
        "decode step, p50", f"{decode['p50_ms']:.2f} ms", f"{decode['predicted_ms']:.2f} ms"
    )
    table.add_row("decode step, p95", f"{decode['p95_ms']:.2f} ms", "")
    table.add_row("decode", f"{decode['tokens_per_s']:.1f} tok/s",
                  f"{decode['predicted_tokens_per_s']:.1f} tok/s")  # fmt: skip
    predicted = prefill["predicted"]
    rate = f"{predicted['tokens_per_s']:.1f} tok/s" if predicted else "not known"
    table.add_row(f"prompt of {prefill['tokens']}", f"{prefill['tokens_per_s']:.1f} tok/s", rate)
    for stage in report["stages"]:
        table.add_row(f"stage {stage['stage']} on {stage['device']}, a step",
                      f"{stage['compute_ms']:.2f} ms",
                      f"{stage['predicted_compute_ms']:.2f} ms")  # fmt: skip
        if stage["predicted_exchange_ms"]:
            table.add_row(f"exchanges of rank {stage['rank']}, a step",
                          f"{stage['exchange_ms']:.2f} ms",
                          f"{stage['predicted_exchange_ms']:.2f} ms")  # fmt: skip
    for stage in report["stages"]:
        for hop in _hops_out_of(stage["rank"], report["hops"]):
            table.add_row(f"hop {hop['from']} to {hop['to']}, median", f"{hop['median_us']:.0f} us",
                          f"{stage['predicted_hop_us']:.0f} us")  # fmt: skip
    return table


def _hops_out_of(rank: int, hops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the prediction of a stage's hop is about: its rows to the next, or the token back."""
    mine = [hop for hop in hops if hop["from"] == rank]
    rows = [hop for hop in mine if hop["payload"] == "hidden"]
    return rows or [hop for hop in mine if hop["to"] == 0 and hop["payload"] == "step"]


def _memory_table(report: dict[str, Any]) -> Table:
    table = Table("device", "", "planned", "allocated", title="memory", box=None)
    for row in report["devices"]:
        for column, planned in row["planned"].items():
            allocated = row["allocated"].get(column)
            if planned or allocated:
                found = "" if allocated is None else format_bytes(allocated)
                table.add_row(row["device"], column, format_bytes(planned), found)
    return table
