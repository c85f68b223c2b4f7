"""The sums and roundings that all kernels are made of, against exact arithmetic."""

import numpy as np
import pytest
import torch
from plancc_kernel_calls import CODES, TORCH, fma, primitive

from plancc.kernels.vectors import LANES

SEED = 7
LENGTHS = (1, 5, 31, 32, 33, 64, 100, 576)


def _numbers(count: int, dtype: str, seed: int = SEED) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator).to(TORCH[dtype])


def _all_patterns() -> torch.Tensor:
    """Float32 of every exponent and of both signs, ties of bfloat16 and float16 among them."""
    random = np.random.default_rng(SEED).integers(0, 2**32, 200_000, dtype=np.uint32)
    ties = np.arange(2**16, dtype=np.uint32) << 16 | 0x8000
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    bits = np.concatenate([random, ties, ties ^ 1, halves, halves | 0x1000])
    return torch.from_numpy(bits.view(np.float32).copy())


def _same_numbers(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    is_nan = torch.isnan(theirs)
    same = ours.view(torch.int32) == theirs.view(torch.int32)
    return bool((same | (is_nan & torch.isnan(ours))).all())


@pytest.mark.parametrize("dtype", TORCH)
def test_rounding_in_place_is_to_the_nearest_number_of_the_format(dtype: str) -> None:
    values = _all_patterns()
    expected = values.to(TORCH[dtype]).float()
    primitive("round_to")(values.data_ptr(), len(values), CODES[dtype])
    assert _same_numbers(values, expected)


@pytest.mark.parametrize("dtype", TORCH)
def test_narrowing_and_widening_are_those_of_torch(dtype: str) -> None:
    values = _all_patterns()
    stored = torch.empty(len(values), dtype=TORCH[dtype])
    back = torch.empty(len(values))
    primitive("narrow")(values.data_ptr(), len(values), stored.data_ptr(), CODES[dtype])
    primitive("widen")(stored.data_ptr(), CODES[dtype], len(values), back.data_ptr())
    assert _same_numbers(back, values.to(TORCH[dtype]).float())


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("count", LENGTHS)
def test_a_dot_is_near_the_exact_sum(count: int, dtype: str) -> None:
    w, x = _numbers(count, dtype), _numbers(count, "float32", seed=8)
    found = primitive("dot")(w.data_ptr(), x.data_ptr(), count, CODES[dtype])
    exact = (w.double() * x.double()).sum()
    # Each of at most count / 32 + 6 roundings loses half a unit of a sum of magnitudes.
    tolerance = (count / LANES + 6) * 2.0**-24 * float((w.double() * x.double()).abs().sum())
    assert abs(found - float(exact)) <= tolerance


@pytest.mark.parametrize("count", [1, 40, 100])
def test_a_dot_adds_in_the_documented_order(count: int) -> None:
    w, x = _numbers(count, "float32"), _numbers(count, "float32", seed=8)
    lanes = [np.float32(0)] * LANES
    whole = count // LANES * LANES
    for i in range(whole):
        lanes[i % LANES] = fma(w[i].numpy()[()], x[i].numpy()[()], lanes[i % LANES])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [np.float32(a + b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    tail = np.float32(0)
    for i in range(whole, count):
        tail = fma(w[i].numpy()[()], x[i].numpy()[()], tail)
    found = primitive("dot")(w.data_ptr(), x.data_ptr(), count, CODES["float32"])
    assert np.float32(found) == np.float32(lanes[0] + tail)


def test_the_same_numbers_in_a_wider_format_have_the_same_dot() -> None:
    w, x = _numbers(576, "bfloat16"), _numbers(576, "float32", seed=8)
    dot = primitive("dot")
    narrow = dot(w.data_ptr(), x.data_ptr(), 576, CODES["bfloat16"])
    wide = w.float()
    assert dot(wide.data_ptr(), x.data_ptr(), 576, CODES["float32"]) == narrow


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("width", [1, 8, 20, 64, 80])
def test_weighted_rows_are_added_in_order(width: int, dtype: str) -> None:
    rows = _numbers(5 * (width + 3), dtype).view(5, width + 3)
    factors, out = _numbers(5, "float32", seed=8), _numbers(width, "float32", seed=9)
    expected = out.clone()
    for row, factor in zip(rows.float(), factors, strict=True):
        for i in range(width):
            expected[i] = float(
                fma(factor.numpy()[()], row[i].numpy()[()], expected[i].numpy()[()])
            )
    primitive("add_rows")(
        rows.data_ptr(), width + 3, CODES[dtype], factors.data_ptr(), 5, out.data_ptr(), width
    )
    assert torch.equal(out, expected)


@pytest.mark.parametrize("num_rows", [1, 3, 4, 6, 9, 16])
def test_a_product_is_a_chain_for_each_element(num_rows: int) -> None:
    count = 7
    matrix = _numbers(num_rows * 10, "float32").view(num_rows, 10)
    x = _numbers(count * 16, "float32", seed=8).view(count, 16)
    before = _numbers(num_rows * 16, "float32", seed=9).view(num_rows, 16)
    out = before.clone()
    chains = torch.zeros(num_rows, 16)
    for k in range(count):
        for row in range(num_rows):
            for lane in range(16):
                operands = (matrix[row, k], x[k, lane], chains[row, lane])
                chains[row, lane] = float(fma(*(value.numpy()[()] for value in operands)))
    product = primitive("product")
    product(matrix.data_ptr(), num_rows, 10, 1, x.data_ptr(), count, out.data_ptr(), 16, 1)
    assert torch.equal(out, before + chains)
    turned = matrix.T.contiguous()
    product(turned.data_ptr(), num_rows, 1, num_rows, x.data_ptr(), count, out.data_ptr(), 16, 0)
    assert torch.equal(out, chains)


def test_exponentials_are_within_two_units_and_their_sum_near_the_exact_one() -> None:
    values = torch.cat([torch.linspace(-87, 0, 4000), torch.tensor([-200.0, -torch.inf, 0.0])])
    shifted = values + 3
    exact = torch.exp(shifted.double() - 3)
    found = shifted.clone()
    total = primitive("exp_minus")(found.data_ptr(), len(found), 3.0)
    assert (found[-3:] == torch.tensor([0.0, 0.0, 1.0])).all()
    relative = (found[:-3].double() - exact[:-3]).abs() / exact[:-3]
    assert float(relative.max()) < 2 * 2.0**-23
    assert abs(total - float(exact.sum())) < 1e-5 * float(exact.sum())
