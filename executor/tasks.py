"""From planrun's flags to what is done once the workers are up; prompts are checked before that."""

from collections.abc import Callable

from plancc.executor.options import Options
from plancc.executor.preflight import Passed
from plancc.executor.request import Request, check_request
from plancc.executor.session import LoadSummary, Session
from plancc.ir.files import refuse_unwritable
from plancc.ir.plan import Plan

Task = Callable[[Session, LoadSummary], None]


def prepare(options: Options, passed: Passed) -> Task:
    """What to do with a session. Raises BadInput for a prompt that this plan cannot answer."""
    for path in (options.record, options.report):
        if path is not None:
            refuse_unwritable(path)
    if options.bench:
        return _bench(options, passed)
    if options.chat:
        return _chat(options, passed)
    return _prompt(options, passed)


def _prompt(options: Options, passed: Passed) -> Task:
    from plancc.executor.oneshot import run_prompt
    from plancc.executor.text import read_model_text

    (prompt,) = options.prompts
    text = read_model_text(passed.weights.folder, passed.plan.model.vocab_size or 0)
    prompt_ids = text.encode_prompt(prompt, system=options.system, is_raw=options.raw)
    request = _checked(options.request(prompt_ids, text.stop_ids), passed.plan)
    return lambda session, load: run_prompt(
        session, load, text, request, as_json=options.as_json, record=options.record
    )


def _chat(options: Options, passed: Passed) -> Task:
    from plancc.executor.chat import run_chat
    from plancc.executor.text import read_model_text

    text = read_model_text(passed.weights.folder, passed.plan.model.vocab_size or 0)
    text.encode_chat([{"role": "user", "content": "?"}])  # no template: said before any load
    return lambda session, load: run_chat(
        session, text, options.system, lambda ids: options.request(ids, text.stop_ids)
    )


def _bench(options: Options, passed: Passed) -> Task:
    from plancc.executor.bench import bench_prompt, run_bench
    from plancc.executor.text import read_model_text

    plan = passed.plan
    if options.prompts:
        (prompt,) = options.prompts
        text = read_model_text(passed.weights.folder, plan.model.vocab_size or 0)
        prompt_ids = text.encode_prompt(prompt, system=options.system, is_raw=options.raw)
    else:
        prompt_ids = bench_prompt(plan, options.max_tokens, options.prompt_tokens)
    request = _checked(options.request(prompt_ids, ()), plan)
    return lambda session, load: run_bench(
        session, load, request, repeat=options.repeat, as_json=options.as_json,
        report_path=options.report,
    )  # fmt: skip


def _checked(request: Request, plan: Plan) -> Request:
    vocab_size = plan.model.vocab_size or 0
    check_request(request, context=plan.runtime.context, vocab_size=vocab_size)
    return request
