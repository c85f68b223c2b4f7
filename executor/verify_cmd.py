"""planrun PLAN --verify ALT: run both plans one after the other, and compare."""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from plancc.executor.options import Options
from plancc.executor.preflight import Passed
from plancc.executor.request import Request, check_request
from plancc.executor.session import LoadSummary, Session
from plancc.executor.verify import (
    Seen,
    distance,
    first_difference,
    made_up_prompts,
    read_logits,
    see,
    verdict,
    words,
)
from plancc.executor.verify_models import inexact_because
from plancc.ir.plan import Plan

Task = Callable[[Session, LoadSummary], None]
Serve = Callable[[Path, Passed, Task], None]


def run_verify(options: Options, passed: Passed, other: Passed, serve: Serve) -> int:
    """The exit code: 0 for equal, or for plans that promise no equality; 1 for different.

    `serve` starts the workers of a plan, has a task done, and ends them.
    """
    assert options.verify is not None
    requests = _requests(options, passed, (passed.plan, other.plan))
    because = inexact_because(passed, other)
    with tempfile.TemporaryDirectory(prefix="planrun-") as folder:
        paths = [Path(folder) / name if because else None for name in ("one", "other")]
        seen = _see_all(options.plan, passed, requests, paths[0], serve)
        if because:
            requests = [request.model_copy(update={"forced_ids": answer.tokens})
                        for request, answer in zip(requests, seen, strict=True)]  # fmt: skip
        found = _see_all(options.verify, other, requests, paths[1], serve)
        difference = None if because else first_difference(seen, found)
        data = verdict(seen, found, difference)
        if paths[0] and paths[1]:
            tokens = [token for answer in seen for token in answer.tokens]
            size = passed.plan.model.vocab_size or 1
            logits = [read_logits(path, size) for path in (paths[0], paths[1])]
            data = {"exact": False, "because": list(because)}
            data |= {"prompts": len(seen), "tokens": len(tokens)}
            data |= distance(logits[0], logits[1], tokens)
    print(json.dumps(data) if options.as_json else words(data, difference))
    sys.stdout.flush()
    return 0 if difference is None else 1


def _see_all(
    path: Path, passed: Passed, requests: Sequence[Request], logits: Path | None, serve: Serve
) -> list[Seen]:
    """`logits`: where the driver is to append every row that it draws from."""
    seen: list[Seen] = []
    place = None if logits is None else str(logits)

    def task(session: Session, load: LoadSummary) -> None:
        for request in requests:
            seen.append(see(session, request.model_copy(update={"logits_file": place})))

    serve(path, passed, task)
    return seen


def _requests(options: Options, passed: Passed, plans: Sequence[Plan]) -> list[Request]:
    """The same for both plans: answers end where the smaller context does. Raises BadInput for a
    prompt that leaves no room for any."""
    context = min(plan.runtime.context for plan in plans)
    vocab_size = min(plan.model.vocab_size or 0 for plan in plans)
    requests = []
    for prompt_ids in _prompts(options, passed, plans):
        request = options.request(prompt_ids, ())
        check_request(request, context=context, vocab_size=vocab_size)
        few = min(options.max_tokens, context - len(prompt_ids))
        requests.append(request.model_copy(update={"max_tokens": few, "wants_digests": True}))
    return requests


def _prompts(options: Options, passed: Passed, plans: Sequence[Plan]) -> Sequence[tuple[int, ...]]:
    if not options.prompts:
        return made_up_prompts(plans, options.max_tokens)
    from plancc.executor.text import read_model_text

    text = read_model_text(passed.weights.folder, passed.plan.model.vocab_size or 0)
    return [text.encode_prompt(prompt, system=options.system, is_raw=options.raw)
            for prompt in options.prompts]  # fmt: skip
