"""The design's choice among values: near the best, fewest devices; then one shape."""

from dataclasses import replace
from functools import partial

from plancc.compiler.placement.chain_choice import Shape, choose, most_headroom
from plancc.compiler.placement.mix import Way
from plancc.compiler.placement.objectives import Option
from plancc.compiler.placement.paths import Limits
from plancc.compiler.placement.problem import Problem


def shape_of(option: Option) -> Shape:
    """The preferred shape of an option: most room on the tightest device, then names, then cuts."""
    ways = [Way(option.columns, option.starts, option.target), *option.others]
    rooms = [most_headroom(way.columns, list(way.starts), way.target) for way in ways]
    best = max(rooms)
    shapes = [_chosen(way, best) for way, room in zip(ways, rooms, strict=True) if room == best]
    return min(shapes, key=partial(_order, option.columns.problem))


def _chosen(way: Way, room: int) -> Shape:
    target = replace(way.target, limits=Limits(room, way.target.limits.most))
    return choose(way.columns, list(way.starts), target)


def _order(problem: Problem, shape: Shape) -> tuple[object, ...]:
    """What choose() prefers, among shapes of different columns."""
    names = tuple(problem.seats[seat] for seat in shape.seats)
    return names, problem.head_modes.index(shape.mode), shape.cuts, shape.block_stages
