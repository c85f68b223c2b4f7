"""--bench: how fast the plan runs here, beside what it predicted, and what it took of memory."""

import json
from pathlib import Path

from rich.console import Console

from plancc.executor.bench_report import bench_report
from plancc.executor.bench_screen import show_report
from plancc.executor.messages import Report
from plancc.executor.request import Outcome, Request
from plancc.executor.session import LoadSummary, Session
from plancc.ir.errors import BadInput
from plancc.ir.files import write_whole
from plancc.ir.plan import Plan

_WARM_UP_TOKENS = 8
_TIMED_TOKENS = 24
_DEFAULT_PROMPT = 128


def run_bench(
    session: Session,
    load: LoadSummary,
    request: Request,
    *,
    repeat: int,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Warm up, measure the answer to a request that no token ends, then its parts, and tell.

    Parts are timed in a run of their own: where a whole step is one launch, it has none.
    """
    for warm_up in warm_ups(request, session.fleet.plan.runtime.context):
        _finish(session, warm_up)
    outcomes = [_finish(session, request) for _ in range(repeat)]
    some = min(_TIMED_TOKENS, request.max_tokens)
    parts = request.model_copy(update={"max_tokens": some, "wants_times": True})
    timed = _finish(session, parts)
    reports = session.reports(Report())
    report = bench_report(session.fleet.plan, load, len(request.prompt_ids), outcomes, timed,
                          reports)  # fmt: skip
    if as_json:
        print(json.dumps(report), flush=True)
    else:
        show_report(report, Console(highlight=False))
    if report_path is not None:  # last: what was measured has been said, should the disk be full
        write_whole(report_path, json.dumps(report, indent=2) + "\n")


def warm_ups(request: Request, context: int) -> tuple[Request, ...]:
    """A few tokens where the answer begins, and where it ends: a backend may prepare its steps for
    lengths of context as it meets them."""
    few, length = min(_WARM_UP_TOKENS, request.max_tokens), len(request.prompt_ids)
    last = max(length, min(length + request.max_tokens, context) - few)
    ids = request.prompt_ids * -(-last // length)
    return tuple(
        request.model_copy(update={"max_tokens": few, "prompt_ids": ids[:size]})
        for size in dict.fromkeys((length, last))
    )


def bench_prompt(plan: Plan, max_tokens: int, num_tokens: int | None = None) -> tuple[int, ...]:
    """Ids that mean nothing: so many, or as many as the plan predicts a prompt of, with room left
    for an answer."""
    context, vocab_size = plan.runtime.context, plan.model.vocab_size or 1
    predicted = plan.predicted.prefill.prompt if plan.predicted.prefill else _DEFAULT_PROMPT
    room = context - max_tokens
    if room < 1:
        raise BadInput(f"--bench: --max-tokens {max_tokens} leaves no room for a prompt: the "
                       f"plan's context is {context}, so say at most {context - 1}")  # fmt: skip
    count = num_tokens or min(predicted, room)
    if count > room:
        raise BadInput(f"--bench: a prompt of {count} and --max-tokens {max_tokens} are more than "
                       f"the plan's context, {context}")  # fmt: skip
    return tuple(7919 * (index + 1) % vocab_size for index in range(count))


def _finish(session: Session, request: Request) -> Outcome:
    *_, outcome = session.generate(request)
    assert isinstance(outcome, Outcome)
    return outcome
