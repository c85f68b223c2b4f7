"""Shares of a down projection in Triton's interpreter: the bits of one device, for any shares."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_gpu_cases import DTYPES, Maker, error
from plancc_gpu_groups import Cut, run_decode, run_prompt

from plancc.kernels.gpu.launch import IS_INTERPRETED
from plancc.kernels.gpu.roots import add_roots
from plancc.kernels.gpu.tilings import Tiling

# The interpreter cuts bfloat16 off where a card rounds: twice the error.
TOLERANCE = {"bfloat16": 16e-3, "float16": 1e-3, "float32": 2e-6}
WIDE = Tiling(64, 32, wide=True, warps=4, stages=2, early=2)
HALVES = Tiling(32, 32, wide=False, warps=4, stages=2, early=40, pieces=2)
WIDE_HALVES = Tiling(64, 32, wide=True, warps=4, stages=2, pieces=2)

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

# (tiles, borders of the shares): tiles have two or three columns
SHARES = [
    (2, (1,)), (3, (1, 2)), (4, (3,)), (5, (2,)), (7, (3, 5)), (9, (4,)), (11, (1, 6)),
    (13, (1, 4, 12)), (16, (5, 10)),
]  # fmt: skip


@pytest.mark.parametrize(("tiles", "borders"), SHARES)
def test_a_group_of_any_shares_adds_to_the_bits_of_one_device(
    tiles: int, borders: tuple[int, ...]
) -> None:
    dtype = "float16" if tiles % 2 else "float32"
    cut = Cut(32, 2 * tiles + tiles // 2, tiles, borders)
    found = run_decode(Maker(DTYPES[dtype]), 3, cut, HALVES)
    assert found.unequal() == []
    assert error(found.group["residual"], found.residual) < TOLERANCE[dtype]
    for part, ref in zip(found.parts, found.ref_parts, strict=True):
        assert error(part, ref) < 2e-6


@pytest.mark.parametrize("tiling", [WIDE, HALVES, WIDE_HALVES], ids=["wide", "halves", "both"])
@pytest.mark.parametrize(("rows", "dtype"), [(1, "bfloat16"), (17, "float16")])
def test_groups_of_columns_are_never_cut(rows: int, dtype: str, tiling: Tiling) -> None:
    found = run_decode(Maker(DTYPES[dtype]), rows, Cut(40, 2 * 19, 3, (1,), group=2), tiling)
    assert found.unequal() == []
    assert error(found.group["residual"], found.residual) < TOLERANCE[dtype]


@pytest.mark.parametrize("tiling", [WIDE, WIDE_HALVES], ids=["one", "two"])
def test_tiles_of_whole_blocks_are_read_without_a_mask(tiling: Tiling) -> None:
    assert run_decode(Maker(torch.bfloat16), 2, Cut(64, 4 * 64, 4, (3,)), tiling).unequal() == []


@pytest.mark.parametrize(("tiles", "borders"), [(3, (2,)), (6, (1, 4))])
def test_prompt_rows_have_the_bits_of_one_device_too(tiles: int, borders: tuple[int, ...]) -> None:
    found = run_prompt(Maker(torch.float32), 5, Cut(40, 2 * tiles + 1, tiles, borders))
    assert found.unequal() == []
    assert error(found.group["residual"], found.residual) < TOLERANCE["float32"]
    for part, ref in zip(found.parts, found.ref_parts, strict=True):
        assert error(part, ref) < 2e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompt_rows_of_whole_blocks_have_them_in_every_format(dtype: str) -> None:
    found = run_prompt(Maker(DTYPES[dtype]), 33, Cut(32, 2 * 64, 2, (1,), group=2))
    assert found.unequal() == []
    assert error(found.group["residual"], found.residual) < TOLERANCE[dtype]


def test_roots_are_added_in_the_order_of_the_tree() -> None:
    """Of five tiles, [0, 3) comes before [3, 5); numbers that tell the order."""
    torch.manual_seed(5)
    ab, c, de = torch.randn(3, 32)
    parts = [ab[None, None], torch.stack([c, de])[None]]  # of tiles [0, 2) and [2, 5)
    residual = torch.zeros(1, 32)
    add_roots(parts, Cut(32, 5, 5, (2,)).merges, residual)
    assert torch.equal(residual[0], (ab + c) + de)
    assert not torch.equal(residual[0], ab + (c + de))


def test_a_group_of_too_many_ranks_is_refused() -> None:
    with pytest.raises(AssertionError, match="9 ranks: expected 1 to 8"):
        add_roots([torch.zeros(1, 1, 32)] * 9, [0] * 9, torch.zeros(1, 32))
