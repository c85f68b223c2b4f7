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
    is_exact,
    made_up_prompts,
    read_logits,
    refuse_two_models,
    see,
    verdict,
    words,
)

Task = Callable[[Session, LoadSummary], None]
Serve = Callable[[Path, Passed, Task], None]


def run_verify(options: Options, passed: Passed, other: Passed, serve: Serve) -> int:
    """The exit code: 0 for equal, or for plans that promise no equality; 1 for different.

    `serve` starts the workers of a plan, has a task done, and ends them.
    """
    assert options.verify is not None
    one, two = passed.plan, other.plan
    refuse_two_models(one, two)
    requests = _requests(options, passed, other)
    with tempfile.TemporaryDirectory(prefix="planrun-") as folder:
        exact = is_exact(one, two)
        paths = [None if exact else Path(folder) / name for name in ("one", "other")]
        seen = _see_all(options.plan, passed, requests, paths[0], serve)
        if not exact:
            requests = [request.model_copy(update={"forced_ids": answer.tokens})
                        for request, answer in zip(requests, seen, strict=True)]  # fmt: skip
        found = _see_all(options.verify, other, requests, paths[1], serve)
        difference = first_difference(seen, found) if exact else None
        data = verdict(seen, found, difference)
        if paths[0] and paths[1]:
            tokens = [token for answer in seen for token in answer.tokens]
            size = one.model.vocab_size or 1
            logits = [read_logits(path, size) for path in (paths[0], paths[1])]
            data = {"exact": False, "prompts": len(seen), "tokens": len(tokens)}
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


def _requests(options: Options, passed: Passed, other: Passed) -> list[Request]:
    plans = (passed.plan, other.plan)
    if options.prompt is not None:
        from plancc.executor.text import read_model_text

        text = read_model_text(passed.weights.folder, passed.plan.model.vocab_size or 0)
        prompts: Sequence[tuple[int, ...]] = [text.encode_raw(options.prompt)]
    else:
        prompts = made_up_prompts(plans, options.max_tokens)
    requests = []
    for prompt_ids in prompts:
        request = options.request(prompt_ids, ()).model_copy(update={"wants_digests": True})
        for plan in plans:
            size = plan.model.vocab_size or 0
            check_request(request, context=plan.runtime.context, vocab_size=size)
        requests.append(request)
    return requests
