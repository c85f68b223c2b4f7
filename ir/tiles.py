"""How an MLP is cut: tiles of whole quantisation groups, and the fixed tree that adds them.

The tree is the same for every placement (design.md section 9): node [a, b) splits at
(a + b + 1) // 2, down to single tiles. A rank that owns a run of tiles sends one partial row for
each maximal subtree inside its run; every rank adds what is left of the tree in the same order.
"""

from collections.abc import Iterator
from functools import cache

MAX_TILES = 64
DEFAULT_TILES = 16

Span = tuple[int, int]


def default_tiles(intermediate_size: int, group: int = 1) -> int:
    return min(DEFAULT_TILES, intermediate_size // group)


def tile_bounds(intermediate_size: int, group: int, tiles: int) -> tuple[int, ...]:
    """tiles + 1 column borders; tile i is columns [bounds[i], bounds[i + 1]), whole groups each."""
    groups = intermediate_size // group
    return tuple(-(-i * groups // tiles) * group for i in range(tiles + 1))


def split_point(first: int, end: int) -> int:
    return (first + end + 1) // 2


def tree_nodes(first: int, end: int) -> Iterator[Span]:
    """Every node of the tree over tiles [first, end), children before their parent."""
    if end - first > 1:
        middle = split_point(first, end)
        yield from tree_nodes(first, middle)
        yield from tree_nodes(middle, end)
    yield (first, end)


@cache
def subtree_roots(tiles: int, share: Span) -> tuple[Span, ...]:
    """The maximal nodes of the tree over [0, tiles) that lie inside `share`, in tile order."""

    def walk(first: int, end: int) -> Iterator[Span]:
        if share[0] <= first and end <= share[1]:
            yield (first, end)
        elif first < share[1] and share[0] < end and end - first > 1:
            middle = split_point(first, end)
            yield from walk(first, middle)
            yield from walk(middle, end)

    return tuple(walk(0, tiles)) if share[0] < share[1] else ()
