"""Tiles are whole groups; a run of them is a few subtrees of one fixed tree (C12)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancc.ir.layers import DenseMlp
from plancc.ir.tiles import default_tiles, subtree_roots, tile_bounds, tree_nodes

SIZES = st.tuples(st.integers(1, 400), st.sampled_from([1, 32, 128]), st.integers(1, 64))


@given(SIZES)
def test_tiles_are_whole_groups_that_cover_the_width(sizes: tuple[int, int, int]) -> None:
    groups, group, tiles = sizes
    tiles = min(tiles, groups)
    bounds = tile_bounds(groups * group, group, tiles)
    widths = [end - first for first, end in itertools.pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(widths)) == (0, groups * group, tiles)
    assert all(width % group == 0 and width > 0 for width in widths)
    assert max(widths) - min(widths) <= group


@pytest.mark.parametrize(
    ("intermediate", "devices", "expected"),
    [
        (29568, 2, {14848: 1, 14720: 1}),
        (11008, 4, {2816: 2, 2688: 2}),
        (1536, 8, {256: 4, 128: 4}),
    ],
)
def test_c12_slices_inside_no_group_sum_to_the_whole(
    intermediate: int, devices: int, expected: dict[int, int]
) -> None:
    bounds = tile_bounds(intermediate, 128, devices)
    widths = [end - first for first, end in itertools.pairwise(bounds)]
    assert {width: widths.count(width) for width in widths} == expected


@given(st.integers(1, 64))
def test_the_tree_adds_every_tile_once_children_first(tiles: int) -> None:
    nodes = list(tree_nodes(0, tiles))
    assert nodes[-1] == (0, tiles)
    assert [node for node in nodes if node[1] - node[0] == 1] == [(i, i + 1) for i in range(tiles)]
    assert len(nodes) == 2 * tiles - 1


@given(st.integers(1, 64), st.data())
def test_roots_of_a_run_are_maximal_nodes_that_cover_it(tiles: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, tiles - 1))
    end = data.draw(st.integers(first + 1, tiles))
    nodes = set(tree_nodes(0, tiles))
    inside = {node for node in nodes if first <= node[0] and node[1] <= end}
    maximal = {
        node for node in inside
        if not any(o != node and o[0] <= node[0] and node[1] <= o[1] for o in inside)
    }  # fmt: skip
    assert list(subtree_roots(tiles, (first, end))) == sorted(maximal)
    assert sum(b - a for a, b in maximal) == end - first


def test_an_empty_run_has_no_roots() -> None:
    assert subtree_roots(8, (3, 3)) == ()


@given(st.integers(1, 10**9), st.integers(1, 64), st.data())
def test_shares_of_a_partition_sum_to_the_weights(
    weight_bytes: int, tiles: int, data: st.DataObject
) -> None:
    mlp = DenseMlp(kind="swiglu", weight_bytes=weight_bytes, intermediate_size=4096, tiles=tiles)
    cuts = sorted(data.draw(st.sets(st.integers(1, tiles), max_size=5)) | {tiles})
    shares = [mlp.share_bytes(a, b) for a, b in zip([0, *cuts], cuts, strict=False)]
    assert sum(shares) == weight_bytes


@pytest.mark.parametrize(("size", "group", "tiles"), [(14336, 1, 16), (96, 32, 3), (5, 1, 5)])
def test_the_default_is_sixteen_tiles_or_one_a_group(size: int, group: int, tiles: int) -> None:
    assert default_tiles(size, group) == tiles
