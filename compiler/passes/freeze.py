"""freeze: the checked draft gets its digest and is the plan.

before  %sample = sample(%head) {...} @s1.r1      (graph unchanged)
after   %sample = sample(%head) {...} @s1.r1      and the plan, which nothing changes any more
"""

from dataclasses import replace

from plancc.compiler.compilation import Compilation
from plancc.compiler.freeze import stamp


def freeze(state: Compilation) -> Compilation:
    assert state.draft is not None
    return replace(state, plan=stamp(state.draft))
