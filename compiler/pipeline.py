"""The passes, in order, and the one place that runs them: verified after each, dumped if asked."""

from collections.abc import Callable

from plancc.compiler.compilation import Compilation, Pass
from plancc.compiler.passes.annotate import annotate
from plancc.compiler.passes.build import build
from plancc.compiler.passes.check import check
from plancc.compiler.passes.freeze import freeze
from plancc.compiler.passes.lower import lower
from plancc.compiler.passes.place import place
from plancc.ir.verify import verify

PIPELINE: tuple[Pass, ...] = (
    Pass("build", build),
    Pass("annotate", annotate),
    Pass("place", place),
    Pass("lower", lower),
    Pass("check", check),
    Pass("freeze", freeze),
)
PASS_NAMES = tuple(item.name for item in PIPELINE)


def run_pipeline(
    question: Compilation,
    *,
    stop_after: str | None = None,
    observe: Callable[[str, Compilation], None] = lambda name, state: None,
) -> Compilation:
    """What the passes make of a question, up to and with `stop_after`.

    `observe` sees the name and the verified result of every pass that ran. Raises what a pass
    tells the user (BadInput, DoesNotFit), and InvalidGraph where a pass of ours broke a rule.
    """
    state = question
    for item in PIPELINE:
        state = item.run(state)
        verify(state.graph)
        observe(item.name, state)
        if item.name == stop_after:
            break
    return state
