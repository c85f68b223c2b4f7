"""The GPU's decode kernels in Triton's interpreter: small shapes, every branch."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_gpu_cases import (
    DTYPES,
    EPS,
    Heads,
    Maker,
    attention_reference,
    entered,
    error,
    run_attention,
    run_gate_up,
    run_join,
    run_linear,
    run_pick,
)

from plancc.kernels.gpu import reference
from plancc.kernels.gpu.enter import enter
from plancc.kernels.gpu.join import join
from plancc.kernels.gpu.launch import IS_INTERPRETED
from plancc.kernels.gpu.linear import linear
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.tilings import Tiling

# The interpreter cuts bfloat16 off where a card rounds: twice the error.
TOLERANCE = {"bfloat16": 16e-3, "float16": 1e-3, "float32": 2e-6}
WIDE = Tiling(64, 64, wide=True, warps=4, stages=2)
NARROW = Tiling(32, 64, wide=False, warps=4, stages=2)
HALVES = Tiling(32, 32, wide=False, warps=4, stages=2, pieces=2)


pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiling", [WIDE, NARROW], ids=["wide", "narrow"])
def test_linear_is_the_norm_times_the_matrix(dtype: str, tiling: Tiling) -> None:
    out, ref = run_linear(Maker(DTYPES[dtype]), 3, 200, 160, tiling, has_bias=dtype == "float16")
    assert error(out, ref) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tiling", [WIDE, NARROW], ids=["wide", "narrow"])
def test_gate_and_up_meet_in_silu(dtype: str, tiling: Tiling) -> None:
    out, ref = run_gate_up(Maker(DTYPES[dtype]), 2, 100, 96, tiling)
    assert error(out, ref) < TOLERANCE[dtype]


@pytest.mark.parametrize("tiling", [WIDE, NARROW, HALVES], ids=["wide", "narrow", "halves"])
@pytest.mark.parametrize(("k", "tiles", "group"), [(256, 4, 1), (330, 5, 2), (96, 1, 1)])
def test_down_is_the_tree_over_tiles(tiling: Tiling, k: int, tiles: int, group: int) -> None:
    out, ref, gain = run_join(Maker(torch.float32), 2, 96, k, tiles, tiling, group=group,
                              has_bias=k == 96, steps=2)  # fmt: skip
    assert error(out["residual"], ref) < TOLERANCE["float32"]
    assert torch.equal(out["gained"], out["residual"] * gain)
    sums = out["residual"].double().square().view(2, -1, CHUNK).sum(-1)
    assert error(out["squares"], sums) < TOLERANCE["float32"]


@pytest.mark.parametrize("tiles", [2, 3, 7, 16])
def test_the_tree_is_added_in_its_order(tiles: int) -> None:
    """Partials that are exact in float32 and far apart: only the tree's order gives these bits."""
    torch.manual_seed(tiles)
    powers = torch.randint(-20, 20, (tiles,)).float()
    x = torch.zeros(1, tiles * 32)
    x[0, ::32] = torch.exp2(powers) * (1 + torch.rand(tiles))
    w = torch.ones(32, tiles * 32)
    make = Maker(torch.float32)
    out = {"residual": torch.zeros(1, 32), "gained": make.poisoned(1, 32),
           "squares": make.poisoned(1, 1)}  # fmt: skip
    bounds = tuple(32 * i for i in range(tiles + 1))
    for tiling in (NARROW, HALVES):
        out["residual"].zero_()
        join(x, w, None, *out.values(), torch.ones(32), tiling=tiling,
             partials=make.poisoned(2, 1, 32), counters=make.ints(1), bounds=bounds,
             group=1)  # fmt: skip
        assert torch.equal(out["residual"], reference.tile_tree(x, w, bounds))


@pytest.mark.parametrize("tiling", [WIDE, NARROW, HALVES], ids=["wide", "narrow", "halves"])
def test_a_row_has_the_same_bits_alone_and_among_others(tiling: Tiling) -> None:
    make = Maker(torch.bfloat16)
    rows, gain, w = make.normal(18, 64), make.normal(64), make.weights(64, 64)
    found = []
    for count in (1, 3, 16, 18):
        begun = entered(make, rows[:count], gain)
        out = make.poisoned(count, 64)
        linear(begun["gained"], begun["squares"], w, None, out, eps=EPS, tiling=tiling)
        found.append(out[0])
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_segment_enters_by_token_or_by_row(dtype: str) -> None:
    make = Maker(DTYPES[dtype])
    table, gain = make.normal(10, 70), make.normal(70)
    tokens = torch.tensor([7, 0, 3], dtype=torch.int32)
    positions = torch.tensor([0, 1, 100_000], dtype=torch.int32)
    inv_freq = torch.tensor([[1.0, 0.3, 1e-4], [0.5, 0.25, 0.125]], dtype=torch.float64)
    factors = torch.tensor([1.0, 1.5], dtype=torch.float64)
    out = {"residual": make.poisoned(3, 70), "gained": make.poisoned(3, 70),
           "squares": make.poisoned(3, 3, dtype=torch.float32)}  # fmt: skip
    angles = make.poisoned(2, 4, 2, 3, dtype=torch.float32)
    enter(table, tokens, positions, *out.values(), gain, inv_freq, factors, angles)
    assert torch.equal(out["residual"], table[tokens.long()])
    gained = table[tokens.long()].double() * gain.double()
    assert error(out["gained"], gained) < TOLERANCE[dtype]
    by_row = entered(make, table[tokens.long()], gain)
    assert all(torch.equal(out[name], by_row[name]) for name in out)
    turned = positions.double()[:, None] * inv_freq[1]
    assert torch.equal(angles[1, :3, 0], (turned.cos() * 1.5).float())
    assert torch.equal(angles[1, :3, 1], (turned.sin() * 1.5).float())


SHAPES = {
    "grouped": Heads(),
    "one head each": Heads(heads=2, kv_heads=2, dim=24, rotary=8),
    "no rotation": Heads(heads=3, kv_heads=1, dim=16, rotary=0),
    "window": Heads(heads=2, kv_heads=1, dim=16, rotary=16, window=150),
}


@pytest.mark.parametrize("name", SHAPES)
def test_attention_appends_and_sees_what_its_slot_keeps(name: str) -> None:
    shape, lengths, slots = SHAPES[name], [0, 63, 128, 300], [2, 0, 3, 1]
    make = Maker(torch.float32)
    found = run_attention(make, shape, lengths, 304, order=slots)
    for row, slot in enumerate(slots):
        ref = attention_reference(shape, found, row, slot)
        assert error(found["out"][row].view(shape.heads, -1), ref) < 2e-6
        place = found["pages"][slot, lengths[row] // 16].long() * 16 + lengths[row] % 16
        own = found["qkv"][row].view(-1, shape.dim)
        key = reference.rotate(own[None, shape.heads : -shape.kv_heads].double(),
                               found["positions"][row : row + 1].double(),
                               found["inv_freq"])  # fmt: skip
        assert error(found["keys"][place], key[0]) < 1e-6
        assert torch.equal(found["values"][place], own[-shape.kv_heads :])
        found["old_keys"][place], found["old_values"][place] = (
            found["keys"][place],
            own[-shape.kv_heads :],
        )
    assert torch.equal(found["keys"], found["old_keys"])
    assert torch.equal(found["values"], found["old_values"])


def test_attention_in_half_precision_is_near() -> None:
    for dtype in ("bfloat16", "float16"):
        found = run_attention(Maker(DTYPES[dtype]), Heads(), [150], 160)
        ref = attention_reference(Heads(), found, 0, 0)
        assert error(found["out"][0].view(4, -1), ref) < 2 * TOLERANCE[dtype]


def test_greedy_takes_the_first_of_the_largest() -> None:
    logits = torch.randn(3, 1000)
    logits[0, [17, 400]] = 9.0
    logits[1, 999] = 10.0
    logits[2] = -5.0
    tokens, positions = run_pick(Maker(torch.float32), logits)
    assert tokens.tolist() == [17, 999, 0]
    assert positions.tolist() == [6, 7, -1]


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    logits, make = torch.randn(1, 130).expand(2, -1).contiguous(), Maker(torch.float32)
    greedy = int(logits[0].argmax())
    drawn, _ = run_pick(make, logits, [0.0, 1e4], seed=7)
    again, _ = run_pick(make, logits, [1e4, 1e4], seed=7)
    other, _ = run_pick(make, logits[:1], [1e4], seed=8)
    assert drawn[0] == greedy
    assert drawn[1] == again[1]
    assert len({int(drawn[1]), int(again[0]), int(other[0])}) > 1


def test_shapes_that_no_kernel_takes_are_refused() -> None:
    make = Maker(torch.float32)
    with pytest.raises(AssertionError, match="65 rows: expected 1 to 64"):
        run_linear(make, 65, 32, 32, NARROW)
    with pytest.raises(AssertionError, match="head_dim 288"):
        run_attention(make, Heads(dim=288, rotary=0), [1], 16)
