"""The GPU's prompt kernels in Triton's interpreter: small shapes, every branch."""

import os
from collections.abc import Callable

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_gpu_cases import (
    DTYPES,
    EPS,
    Heads,
    Maker,
    error,
    run_prompt_attention,
    waiting_room,
)

from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.launch import IS_INTERPRETED
from plancc.kernels.gpu.prompt_attention import prompt_attention
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_linear import prompt_linear
from plancc.kernels.gpu.prompt_norm import norm
from plancc.kernels.gpu.roots import add_roots

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
# The interpreter cuts bfloat16 off where a card rounds: twice the error.
TOLERANCE = {"bfloat16": 16e-3, "float16": 1e-3, "float32": 2e-6}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_norm_is_rounded_once(dtype: str) -> None:
    make = Maker(DTYPES[dtype])
    x, gain, out = make.normal(3, 50), make.normal(50), make.poisoned(3, 50)
    norm(x, gain, out, eps=EPS)
    assert error(out, reference.rms_norm(x.double(), gain.double(), EPS)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_have_a_bias_and_join_what_was_there(dtype: str) -> None:
    make = Maker(DTYPES[dtype])
    x, w, bias, out = make.normal(5, 70), make.weights(40, 70), make.normal(40), make.normal(5, 40)
    ref = reference.linear(x.double(), w.double(), bias.double())
    joined = out.double() + ref
    prompt_linear(x, w, bias, out, out)
    assert error(out, joined) < TOLERANCE[dtype]
    prompt_linear(x, w, bias, None, out.fill_(float("nan")))
    assert error(out, ref) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gate_and_up_meet_in_silu(dtype: str) -> None:
    make = Maker(DTYPES[dtype])
    x, w, out = make.normal(5, 64), make.weights(80, 64), make.poisoned(5, 40)
    prompt_gate_up(x, w, out)
    assert error(out, reference.swiglu(x.double(), w.double())) < TOLERANCE[dtype]


@pytest.mark.parametrize(("dtype", "k", "tiles", "group"),
                         [("float32", 128, 4, 1), ("float32", 66, 3, 2), ("float32", 40, 1, 1),
                          ("float16", 160, 5, 1), ("bfloat16", 75, 5, 3)])  # fmt: skip
def test_down_is_the_tree_over_tiles(dtype: str, k: int, tiles: int, group: int) -> None:
    make, bounds = Maker(DTYPES[dtype]), tile_bounds(k, group, tiles)
    x, w, residual = make.normal(3, k), make.weights(40, k), make.normal(3, 40)
    ref = residual.double() + reference.tile_tree(x.double(), w.double(), bounds)
    prompt_down(
        x, w, residual, bounds=bounds, group=group, waiting=waiting_room(make, 3, 40, tiles)
    )
    assert error(residual, ref) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_other_rows_hold_changes_no_bit_of_a_row(dtype: str) -> None:
    """Rows that only fill a chunk up are computed with it, and may hold anything."""
    make, rows, few = Maker(DTYPES[dtype]), 70, 5
    bounds = tile_bounds(32, 1, 3)
    x, w, gain = make.normal(rows, 32), make.weights(40, 32), make.normal(32)
    x[few:] = float("nan")
    room = waiting_room(make, rows, 40, 3)
    kernels: dict[str, tuple[int, Callable[..., None]]] = {
        "norm": (32, lambda x, out: norm(x, gain, out, eps=EPS)),
        "linear": (40, lambda x, out: prompt_linear(x, w, None, out, out)),
        "gate, up": (20, lambda x, out: prompt_gate_up(x, w, out)),
        "down": (40, lambda x, out: prompt_down(x, w, out, bounds=bounds, group=1, waiting=room)),
    }  # fmt: skip
    for name, (width, kernel) in kernels.items():
        out = torch.full((rows, width), 3.0, dtype=make.dtype)
        alone = out[:few].clone()
        kernel(x, out)
        kernel(x[:few], alone)
        assert torch.equal(out[:few], alone), name


def test_the_sum_of_roots_changes_the_rows_it_is_given_and_no_others() -> None:
    make = Maker(torch.float16)
    residual, parts = make.normal(70, 32), [make.normal(70, 1, 32, dtype=torch.float32)] * 2
    expected, before = residual[:5].clone(), residual[5:].clone()
    add_roots([part[:5].clone() for part in parts], [0, 1], expected)
    add_roots(parts, [0, 1], residual[:5])
    assert torch.equal(residual[:5], expected)
    assert torch.equal(residual[5:], before)


SHAPES = {
    "grouped": Heads(heads=4, kv_heads=2, dim=16, rotary=16),
    "window, half rotated": Heads(heads=1, kv_heads=1, dim=24, rotary=8, window=20),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_chunk_is_appended_and_sees_what_came_before(name: str) -> None:
    shape, first, num_rows = SHAPES[name], 35, 34
    found = run_prompt_attention(Maker(torch.float32), shape, first, num_rows, 80)
    assert error(found["out"], found["ref"]) < 2e-6
    assert error(found["keys"], found["ref_keys"]) < 1e-6
    assert torch.equal(found["values"], found["ref_values"])


def test_a_chunk_is_of_the_slot_that_is_said() -> None:
    """Its last rows do not count, and are no keys of the others."""
    make, heads = Maker(torch.float32), SHAPES["grouped"]
    qkv, angles = make.normal(40, 8 * 16), torch.ones(40, 2, 8)
    qkv[3:] = float("nan")
    pages = torch.arange(6, dtype=torch.int32).view(2, 3)
    found = []
    for rows, table, slot in ((3, pages[1:], 0), (40, pages, 1)):
        keys, values = (torch.ones(96, 2, 16) for _ in range(2))
        out = torch.full((rows, 4 * 16), 3.0)
        prompt_attention(qkv[:rows], angles, table, keys, values, out, make.numbers(16, 3, slot),
                         page_tokens=16, capacity=48, window=None,
                         rotary_dim=heads.rotary)  # fmt: skip
        assert (out[3:] == 3).all()
        found.append([out[:3], keys, values])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_heads_that_are_too_wide_are_refused() -> None:
    make = Maker(torch.float32)
    with pytest.raises(AssertionError, match="head_dim 288"):
        prompt_attention(make.normal(1, 3 * 288), make.normal(1, 2, 1), make.ints(1),
                         make.normal(16, 1, 288), make.normal(16, 1, 288), make.normal(1, 288),
                         make.numbers(0, 1, 0), page_tokens=16, capacity=16, window=None,
                         rotary_dim=0)  # fmt: skip
