"""Borders of what GPU kernels take, in Triton's interpreter against float64: the quick ones. More
of them, and larger, are asked on a card (tests/gpu/test_kernels.py)."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_gpu_cases import DTYPES, Heads, Maker, attention_reference, error, run_attention
from plancc_gpu_extremes import (
    HEADS,
    MATRICES,
    attention_errors,
    matrix_errors,
    too_far,
    tree_errors,
)

from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
# The interpreter cuts bfloat16 off where a card rounds: twice the error, and of one sign.
NEAR = {"bfloat16": 16e-3, "float16": 75e-5, "float32": 2e-6}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("256 wide", "float32"), ("80 wide", "float16"), ("a window of 5", "float16")],
)
def test_attention_is_near_at_the_borders_of_what_it_takes(name: str, dtype: str) -> None:
    assert too_far(attention_errors(Maker(DTYPES[dtype]), HEADS[name]), NEAR[dtype]) == {}


def test_sixty_four_queries_share_a_head() -> None:
    shape = HEADS["64 queries, 16 wide"]
    found = run_attention(Maker(torch.float32), shape, [1, 40], 48)
    for row in (0, 1):
        ref = attention_reference(shape, found, row, row)
        assert error(found["out"][row].view(64, 16), ref) < NEAR["float32"]


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", ["float16"])
def test_products_of_odd_sizes_are_near(name: str, dtype: str) -> None:
    most = NEAR[dtype] if name != "one number" else 2e-3
    assert too_far(matrix_errors(Maker(DTYPES[dtype]), *MATRICES[name]), most) == {}


def test_a_tree_of_as_many_tiles_as_there_may_be_is_near() -> None:
    assert too_far(tree_errors(Maker(torch.float32), 5, 70, 64), NEAR["float32"]) == {}


PAIRS = [("float16", "float32"), ("float32", "bfloat16")]  # cards are asked all


@pytest.mark.parametrize(("dtype", "kv_dtype"), PAIRS)
def test_a_cache_of_another_format_is_near(dtype: str, kv_dtype: str) -> None:
    """K and V of 32 keys at a time where they are wider, in splits of as many as ever; they are
    rounded once more than those of the model's format."""
    most = 1.5 * max(NEAR[dtype], NEAR[kv_dtype])
    for shape, lengths in ((Heads(2, 1, 32, 32), [0, 33, 300]),
                           (Heads(2, 1, 144, 64, window=100), [64, 300])):  # fmt: skip
        errors = attention_errors(Maker(DTYPES[dtype]), shape, lengths=lengths,
                                  kv_dtype=DTYPES[kv_dtype])  # fmt: skip
        assert too_far(errors, most) == {}


def test_a_wider_cache_changes_no_bit_by_the_company_or_the_reach() -> None:
    lengths, shape = [0, 31, 32, 255, 256], Heads(2, 1, 16, 16)
    found = [run_attention(Maker(torch.float16), shape, lengths, 272, reach=reach,
                           kv_dtype=torch.float32)["out"] for reach in (272, 256)]  # fmt: skip
    assert torch.equal(found[0][:4], found[1][:4])


def test_a_wider_cache_holding_the_model_s_numbers_gives_nearly_the_same() -> None:
    """What float32 keeps of K and V that float16 would round is little."""
    shape = Heads(2, 1, 32, 32)
    found = [run_attention(Maker(torch.float16), shape, [100, 300], 304, kv_dtype=kept)["out"]
             for kept in (None, torch.float32)]  # fmt: skip
    distance = (found[0].double() - found[1].double()).norm() / found[0].double().norm()
    assert 0 < float(distance) < 1e-3
