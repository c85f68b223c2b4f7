"""check: the plan that is about to be frozen, judged by code that shares nothing with the solver.

before  %l0.mixer = mixer(...) @s0.r0      (graph unchanged)
after   %l0.mixer = mixer(...) @s0.r0      and a draft of the plan in which nothing is wrong
"""

from dataclasses import replace

from plancc.compiler.check import content_problems
from plancc.compiler.compilation import Compilation
from plancc.compiler.freeze import draft_plan


def check(state: Compilation) -> Compilation:
    """A problem here is a bug of ours, never the user's: an assertion with every problem."""
    draft = draft_plan(state)
    problems = content_problems(draft, state.manifest, state.topology)
    assert not problems, "the plan fails its own check:\n" + "\n".join(problems)
    return replace(state, draft=draft)
