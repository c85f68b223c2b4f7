"""Decode products with a ring of weights have the bits of those without, on a Hopper card."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_gpu_cases import DTYPES, Maker, run_gate_up, run_join, run_linear
from plancc_gpu_groups import Cut, run_decode

from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.tilings import Tiling, tiling

if not card_at(0).has_ring:
    pytest.skip("only a Hopper card has a ring", allow_module_level=True)

pytestmark = pytest.mark.gpu
ROWS = [1, 3, 16, 17, 33, 64]
SIZES = [(6144, 4096), (8448, 512), (100, 128), (1000, 1152), (64, 16512)]
"""N, K: a few blocks, many, parts; programs of 48 rows, 64, 16."""
TREES = [(4096, 16, 896), (4096, 2, 2048), (200, 1, 128), (64, 3, 256), (320, 12, 128),
         (96, 15, 384), (64, 64, 128)]  # fmt: skip

CUTS = [Cut(4096, 14336, 16, (8,)), Cut(4096, 14336, 16, (9,)), Cut(200, 2048, 16, (5, 10)),
        Cut(96, 5760, 15, (1, 2, 9)), Cut(64, 8192, 64, (31,))]  # fmt: skip
"""Shares of one root or more, cut between roots and within one, or of one tile."""


def both(run: Callable[[Maker, Tiling], Any], dtype: str, how: Tiling) -> tuple[Any, Any]:
    """What comes of equal inputs, with a ring and without."""
    assert how.slots > 1
    found = [run(Maker(DTYPES[dtype], "cuda", seed=7), each)
             for each in (how, replace(how, slots=0))]  # fmt: skip
    torch.cuda.synchronize()
    return found[0], found[1]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", ROWS)
def test_a_matrix(rows: int, dtype: str, sizes: tuple[int, int]) -> None:
    n, k = sizes
    how = tiling("qkv", 2, rows, k, card_at(0))
    for has_bias in (False, True):
        (ringed, _), (plain, _) = both(
            lambda make, how: run_linear(make, rows, n, k, how, has_bias=has_bias),  # noqa: B023
            dtype, how)  # fmt: skip
        assert torch.equal(ringed, plain)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", ROWS)
def test_gate_and_up(rows: int, dtype: str, sizes: tuple[int, int]) -> None:
    n, k = sizes
    how = tiling("gate_up", 2, rows, k, card_at(0))
    (ringed, _), (plain, _) = both(
        lambda make, how: run_gate_up(make, rows, n, k, how), dtype, how)  # fmt: skip
    assert torch.equal(ringed, plain)


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", ROWS)
def test_a_sum_that_joins_the_residual(rows: int, dtype: str, tree: tuple[int, int, int]) -> None:
    n, tiles, width = tree
    for pieces in (1, 2):
        how = replace(tiling("down", 2, rows, width, card_at(0)), pieces=pieces)
        (ringed, _, _), (plain, _, _) = both(
            lambda make, how: run_join(make, rows, n, tiles * width, tiles, how,
                                       has_bias=True, steps=2),
            dtype, how)  # fmt: skip
        for name in ("residual", "gained", "squares"):
            assert torch.equal(ringed[name], plain[name]), name


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", ROWS)
def test_partial_sums_of_a_group(rows: int, dtype: str, cut: Cut) -> None:
    how = tiling("down", 2, rows, cut.k // cut.tiles, card_at(0))
    ringed, plain = both(lambda make, how: run_decode(make, rows, cut, how), dtype, how)
    assert not ringed.unequal()
    for theirs, ours in zip(plain.parts, ringed.parts, strict=True):
        assert torch.equal(ours, theirs)
