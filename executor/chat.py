"""--chat: a conversation at the terminal. Each turn is prefilled anew, the whole of it."""

import sys
from collections.abc import Callable, Iterator

from plancc.executor.failures import ContextExceeded
from plancc.executor.oneshot import stream_answer
from plancc.executor.request import Request, check_request
from plancc.executor.screen import notes
from plancc.executor.session import Session
from plancc.executor.text import ModelText
from plancc.ir.errors import BadInput

_HELP = "Ctrl-D or /exit ends, /new begins again."


def run_chat(
    session: Session,
    text: ModelText,
    system: str | None,
    build: Callable[[tuple[int, ...]], Request],
) -> None:
    """Answer line after line until the input ends; `build` turns prompt ids into a request."""
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    notes().print(_HELP, markup=False)
    for line in _lines():
        if line == "/new":
            messages = list(opening)
            continue
        messages.append({"role": "user", "content": line})
        request = build(text.encode_chat(messages))
        try:
            check_request(
                request,
                context=session.fleet.plan.runtime.context,
                vocab_size=session.fleet.plan.model.vocab_size or 0,
            )
        except ContextExceeded as error:
            messages.pop()
            notes().print(f"{error} (/new begins again)", markup=False)
            continue
        answer = stream_answer(session, text, request, shown=True)
        sys.stdout.write("\n")
        sys.stdout.flush()
        messages.append({"role": "assistant", "content": answer.text})


def _lines() -> Iterator[str]:
    """Lines that say something, edited where someone types them."""
    is_typed = sys.stdin.isatty()
    if is_typed:
        import readline  # noqa: F401 - `input` then edits and remembers
    while True:
        try:
            line = input("> " if is_typed else "").strip()
        except EOFError:
            return
        except UnicodeDecodeError as error:
            raise BadInput(f"the line is not UTF-8 text: {error.reason}") from None
        if line == "/exit":
            return
        if line:
            yield line
