"""The margin: how much slower than the best a shape of fewer devices may be."""

from fractions import Fraction

from plancc.compiler.placement.problem import Problem


def within_margin(problem: Problem, best: int) -> int:
    """floor(best x (1 + margin)), exactly; no margin for `context`."""
    margin = 0.0 if problem.ask.objective == "context" else problem.ask.margin
    return int(best * (1 + Fraction(str(margin))))
