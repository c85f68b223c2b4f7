"""The design's choice among values: near the best, fewest devices; then one shape."""

from fractions import Fraction

from plancc.compiler.placement.chain_choice import Shape, Target, choose, most_headroom
from plancc.compiler.placement.objectives import Option
from plancc.compiler.placement.paths import Limits
from plancc.compiler.placement.problem import Problem


def within_margin(problem: Problem, best: int) -> int:
    """floor(best x (1 + margin)), exactly; no margin for `context`."""
    margin = 0.0 if problem.ask.objective == "context" else problem.ask.margin
    return int(best * (1 + Fraction(str(margin))))


def preferred(found: dict[int, Option], most: int) -> Option:
    """Fewest stages among those worth at most `most`."""
    return found[min(count for count, option in found.items() if option.value <= most)]


def shape_of(option: Option) -> Shape:
    """The preferred shape of an option: most room on the tightest device, then names, then cuts."""
    columns, starts = option.columns, list(option.starts)
    room = most_headroom(columns, starts, option.target)
    limits = Limits(room, option.target.limits.most)
    return choose(columns, starts, Target(option.target.value, option.num_stages, limits))
