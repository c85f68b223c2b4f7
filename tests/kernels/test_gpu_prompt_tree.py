"""Prompt products in large blocks, in the interpreter: every way to wait, every way to load."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

from dataclasses import replace

import pytest
import torch
from plancc_gpu_cases import DTYPES, Maker, error, tiles_alone, tree_of

from plancc.ir import waiting
from plancc.ir.tiles import MAX_TILES, split_point, tile_bounds
from plancc.kernels.gpu import prompt_linear, reference
from plancc.kernels.gpu.card import HOPPER
from plancc.kernels.gpu.launch import IS_INTERPRETED
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_tilings import (
    ALL_HELD,
    PromptTiling,
    down_tiling,
    fitting,
    waiting_size,
    waiting_slots,
)
from plancc.kernels.gpu.prompt_tree import prompt_tree

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
# The interpreter cuts bfloat16 off where a card rounds: twice the error.
TOLERANCE = {"bfloat16": 16e-3, "float16": 1e-3, "float32": 2e-6}
SMALL = PromptTiling(32, 32, 32, warps=1, stages=1, copies=False, height=2)


def run(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor, tiles: int, tiling: PromptTiling, group: int = 1,
) -> None:  # fmt: skip
    """Two programs, and not a number more than they want."""
    size = waiting_size(tiling, tiles, 2)
    prompt_tree(x, w, bias, before, out, bounds=tile_bounds(x.shape[1], group, tiles), group=group,
                tiling=tiling, waiting=torch.full((size,), float("nan")))  # fmt: skip


def most_in_memory(tiles: int, held: int, around: int = 0) -> int:
    """Sums that wait in memory at a time while a node of so many tiles is summed: a left child
    waits, in a register if it is of `held` tiles or less."""
    if tiles == 1:
        return around
    left = split_point(0, tiles)
    waits = around + (left > held)
    return max(most_in_memory(left, held, around), most_in_memory(tiles - left, held, waits))


@pytest.mark.parametrize("held", [0, 1, 2])
def test_there_is_a_slot_for_every_sum_that_waits(held: int) -> None:
    tiling = replace(SMALL, held=held)
    for tiles in range(1, MAX_TILES + 1):
        assert most_in_memory(tiles, held) <= waiting_slots(tiling, tiles)
        assert waiting_slots(replace(SMALL, held=ALL_HELD), tiles) == 0


def test_a_plan_counts_the_memory_that_sums_wait_in() -> None:
    for itemsize in (2, 4):
        tiling, n = down_tiling(itemsize, HOPPER, 4096, 4096), 4096
        for tiles in range(1, MAX_TILES + 1):
            for rows, programs in ((1, 32), (129, 64), (4096, waiting.PROGRAMS)):
                counted = waiting.waiting_bytes(tiles, rows, n, itemsize)
                assert counted == 4 * waiting_size(tiling, tiles, programs)


@pytest.mark.parametrize("held", [0, 1, 2, ALL_HELD])
@pytest.mark.parametrize("tiles", [1, 3, 7, 11])
def test_partials_are_added_as_the_tree_says(tiles: int, held: int) -> None:
    make = Maker(torch.float32)
    parts = make.normal(tiles, 8)  # a tile's partial is one of these numbers, exactly
    x, w = torch.zeros(1, tiles * 32), torch.zeros(8, tiles * 32)
    x[:, ::32], w[:, ::32] = 1.0, parts.T
    out = make.poisoned(1, 8)
    run(x, w, None, None, out, tiles, replace(SMALL, held=held))
    assert torch.equal(out[0], tree_of(parts))


@pytest.mark.parametrize(("k", "tiles", "group", "held"),
                         [(256, 4, 1, 2), (66, 3, 2, 0), (66, 3, 2, ALL_HELD)])  # fmt: skip
def test_bits_are_those_of_the_tiles_by_themselves(
    k: int, tiles: int, group: int, held: int
) -> None:
    make = Maker(torch.float32)
    x, w, residual = make.normal(35, k), make.weights(40, k), make.normal(35, 40)
    out = residual.clone()
    run(x, w, None, out, out, tiles, replace(SMALL, held=held), group)
    assert torch.equal(out, residual + tiles_alone(x, w, tile_bounds(k, group, tiles)))


@pytest.mark.parametrize(("dtype", "copies"), [("bfloat16", True), ("float16", False)])
def test_a_block_past_the_borders_is_right_however_it_is_loaded(dtype: str, copies: bool) -> None:
    make = Maker(DTYPES[dtype])
    x, w, bias, before = (
        make.normal(70, 192),
        make.weights(40, 192),
        make.normal(40),
        make.normal(70, 40),
    )
    ref = before.double() + reference.linear(x.double(), w.double(), bias.double())
    out = make.poisoned(70, 40)
    run(x, w, bias, before, out, 3, replace(SMALL, copies=copies))
    assert error(out, ref) < TOLERANCE[dtype]


def test_a_float32_output_is_not_rounded() -> None:
    make = Maker(torch.float16)
    x, w = make.normal(5, 96), make.weights(40, 96)
    out = make.poisoned(5, 40, dtype=torch.float32)
    run(x, w, None, None, out, 3, replace(SMALL, copies=True))
    assert error(out, reference.linear(x.double(), w.double())) < 2e-6


@pytest.mark.parametrize("copies", [False, True])
def test_gate_and_up_meet_in_silu(copies: bool) -> None:
    make = Maker(torch.float16)
    x, w, out = make.normal(35, 64), make.weights(80, 64), make.poisoned(35, 40)
    prompt_gate_up(x, w, out, tiling=replace(SMALL, copies=copies))
    assert error(out, reference.swiglu(x.double(), w.double())) < TOLERANCE["float16"]


def test_what_the_copy_engine_can_not_reach_is_loaded_otherwise() -> None:
    make, tiling = Maker(torch.float16), replace(SMALL, copies=True)
    whole = make.normal(3, 72)
    loads = [(whole[:, :64], True), (whole[:, 8:], True), (whole[:, 4:68], False),
             (make.normal(3, 68)[:, :64], False)]  # fmt: skip
    for x, is_copied in loads:
        assert fitting(tiling, x, x, 64, is_even=True).copies == is_copied
    assert not fitting(tiling, whole[:, :40], whole[:, :40], 40, is_even=True).copies
    assert not fitting(tiling, whole[:, :64], whole[:, :64], 64, is_even=False).copies


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("by", ["linear_by_pointers", "prompt_tree"])
def test_a_plain_product_is_the_same_by_pointers_and_by_the_copy_engine(
    by: str, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way is not there."""
    copies, made = by == "prompt_tree", {"linear_by_pointers", "prompt_tree"} - {by}
    monkeypatch.setattr(prompt_linear, "plain_tiling", lambda *_: replace(SMALL, copies=copies))
    monkeypatch.setattr(prompt_linear, made.pop(), None)
    make = Maker(torch.float16)
    x, w, bias, out = make.normal(6, 64), make.weights(40, 64), make.normal(40), make.normal(6, 40)
    ref = reference.linear(x.double(), w.double(), bias.double())
    ref += out.double() if joins else 0
    prompt_linear.prompt_linear(x, w, bias, out if joins else None, out)
    assert error(out, ref) < TOLERANCE["float16"]


def test_sums_without_a_place_to_wait_are_refused() -> None:
    make = Maker(torch.float16)
    x, w, out = make.normal(5, 8), make.weights(40, 8), make.poisoned(5, 40)
    for room, message in ((None, "8 tiles: sums have nowhere"), (make.normal(7), "room for 7")):
        with pytest.raises(AssertionError, match=message):
            prompt_down(x, w, out, bounds=tile_bounds(8, 1, 8), group=1, waiting=room)
