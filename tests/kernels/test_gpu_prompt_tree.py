"""Prompt products in large blocks, in the interpreter: every way to wait, every way to load."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

from dataclasses import replace

import pytest
import torch
from plancc_gpu_cases import DTYPES, Maker, error

from plancc.ir.tiles import split_point, tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.launch import IS_INTERPRETED
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_tilings import PromptTiling, scratch_size
from plancc.kernels.gpu.prompt_tree import prompt_gate_up, prompt_tree

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
# The interpreter cuts bfloat16 off where a card rounds: twice the error.
TOLERANCE = {"bfloat16": 16e-3, "float16": 1e-3, "float32": 2e-6}
SMALL = PromptTiling(32, 32, 32, warps=1, stages=1, copies=False, height=2)
CPU = torch.device("cpu")


def run(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor, tiles: int, tiling: PromptTiling, group: int = 1,
) -> None:  # fmt: skip
    scratch = torch.full((scratch_size(tiling, tiles, CPU),), float("nan"))
    bounds = tile_bounds(x.shape[1], group, tiles)
    prompt_tree(x, w, bias, before, out, bounds=bounds, group=group, tiling=tiling,
                scratch=scratch)  # fmt: skip


def tree_of(parts: torch.Tensor) -> torch.Tensor:
    """Float32 sums of parts[0], parts[1], ... by the definition of the tree."""
    if len(parts) == 1:
        return parts[0]
    middle = split_point(0, len(parts))
    return tree_of(parts[:middle]) + tree_of(parts[middle:])


@pytest.mark.parametrize("held", [0, 1, 2])
@pytest.mark.parametrize("tiles", [1, 3, 7, 11])
def test_partials_are_added_as_the_tree_says(tiles: int, held: int) -> None:
    make = Maker(torch.float32)
    parts = make.normal(tiles, 8)  # a tile's partial is one of these numbers, exactly
    x, w = torch.zeros(1, tiles * 32), torch.zeros(8, tiles * 32)
    x[:, ::32], w[:, ::32] = 1.0, parts.T
    out = make.poisoned(1, 8)
    run(x, w, None, None, out, tiles, replace(SMALL, held=held))
    assert torch.equal(out[0], tree_of(parts))


@pytest.mark.parametrize(("k", "tiles", "group", "held"), [(256, 4, 1, 2), (66, 3, 2, 0)])
def test_bits_are_those_of_prompt_down(k: int, tiles: int, group: int, held: int) -> None:
    make = Maker(torch.float32)
    x, w, residual = make.normal(35, k), make.weights(40, k), make.normal(35, 40)
    out = residual.clone()
    prompt_down(x, w, residual, bounds=tile_bounds(k, group, tiles), group=group)
    run(x, w, None, out, out, tiles, replace(SMALL, held=held), group)
    assert torch.equal(out, residual)


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
