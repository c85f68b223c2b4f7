"""One prompt, one answer: text as it comes, or one JSON object."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plancc.executor.measure import run_report
from plancc.executor.messages import Report
from plancc.executor.record import record_rows, write_record
from plancc.executor.request import Outcome, Request, Sampled
from plancc.executor.screen import notes, timing_lines
from plancc.executor.session import LoadSummary, Session
from plancc.executor.text import ModelText


@dataclass(frozen=True)
class Answer:
    """`text` is what was streamed; `sampled` has the token that ended it as well."""

    text: str
    sampled: tuple[Sampled, ...]
    outcome: Outcome

    @property
    def tokens(self) -> list[int]:
        return [row.token for row in self.sampled if not row.is_stop]


def stream_answer(session: Session, text: ModelText, request: Request, *, shown: bool) -> Answer:
    """Run a request; whole characters go to stdout as soon as they are final, if `shown`."""
    stream, pieces, sampled = text.stream(), list[str](), list[Sampled]()
    outcome = None

    def show(piece: str) -> None:
        pieces.append(piece)
        if shown and piece:
            sys.stdout.write(piece)
            sys.stdout.flush()

    for item in session.generate(request):
        if isinstance(item, Outcome):
            outcome = item
            continue
        sampled.append(item)
        if not item.is_stop:
            show(stream.push(item.token))
    show(stream.finish())
    assert outcome is not None, "a session ends with an outcome, or raises"
    return Answer("".join(pieces), tuple(sampled), outcome)


def run_prompt(
    session: Session,
    load: LoadSummary,
    text: ModelText,
    request: Request,
    *,
    as_json: bool,
    record: Path | None,
) -> None:
    """Answer one prompt, then tell what it took, on stderr or in the JSON."""
    answer = stream_answer(session, text, request, shown=not as_json)
    if not as_json and not answer.text.endswith("\n"):
        sys.stdout.write("\n")
    outcome = answer.outcome
    reports = session.reports(
        Report(slot=outcome.slot, num_tokens=outcome.num_tokens, wants_kv=record is not None)
    )
    plan = session.fleet.plan
    report = run_report(plan, load, outcome, len(request.prompt_ids), reports)
    if as_json:
        print(json.dumps(_answer_data(answer) | report), flush=True)
    for line in () if as_json else timing_lines(report):
        notes().print(line, markup=False)
    if record is not None:  # last: all else has been said, should the disk be full
        rows = record_rows(plan, request.prompt_ids, answer.sampled, outcome, reports)
        write_record(record, rows)


def _answer_data(answer: Answer) -> dict[str, Any]:
    return {
        "text": answer.text,
        "tokens": answer.tokens,
        "finish": answer.outcome.finish,
        "completion_tokens": len(answer.tokens),
    }
