"""The GPU kernels on a card, against float64, at shapes of real models."""

from dataclasses import replace

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_gpu_cases import (
    DTYPES,
    NEAR,
    TOLERANCE,
    Heads,
    Maker,
    attention_reference,
    error,
    in_large_blocks,
    run_attention,
    run_gate_up,
    run_join,
    run_linear,
    run_pick,
    run_prompt_attention,
    tiles_alone,
    waiting_room,
)
from plancc_gpu_extremes import (
    HEADS,
    MATRICES,
    TREES,
    attention_errors,
    matrix_errors,
    too_far,
    tree_errors,
)

from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_linear import prompt_linear
from plancc.kernels.gpu.prompt_tilings import PromptTiling, gate_up_tiling
from plancc.kernels.gpu.tilings import tiling

pytestmark = pytest.mark.gpu
LLAMA_8B, SMOLLM2 = (4096, 14336, 6144), (576, 1536, 960)


@pytest.mark.parametrize("sizes", [LLAMA_8B, SMOLLM2], ids=["8b", "135m"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_decode_products_are_near(rows: int, dtype: str, sizes: tuple[int, int, int]) -> None:
    hidden, inner, qkv = sizes
    make, most = Maker(DTYPES[dtype], "cuda"), NEAR[dtype]
    size, card = make.dtype.itemsize, card_at(0)
    out, ref = run_linear(make, rows, qkv, hidden, tiling("qkv", size, rows, hidden, card),
                          has_bias=True)  # fmt: skip
    assert error(out, ref) < most
    out, ref = run_gate_up(make, rows, inner, hidden, tiling("gate_up", size, rows, hidden, card))
    assert error(out, ref) < most
    found, ref, _ = run_join(make, rows, hidden, inner, 16,
                             tiling("down", size, rows, inner // 16, card), steps=2)  # fmt: skip
    assert error(found["residual"], ref) < most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [Heads(32, 8, 128, 128), Heads(9, 3, 64, 64, window=300)])
def test_attention_is_near_and_its_bits_do_not_depend_on_the_company(
    shape: Heads, dtype: str
) -> None:
    lengths = [0, 5, 127, 128, 200, 255, 256, 700, 3000]
    found = run_attention(Maker(DTYPES[dtype], "cuda"), shape, lengths, 3008)
    for row in range(len(lengths)):
        ref = attention_reference(shape, found, row, row)
        assert error(found["out"][row].view(shape.heads, -1), ref) < NEAR[dtype]
    for count, reach in ((2, 128), (6, 256), (7, 512)):  # the same rows, in programs of other kinds
        alone = run_attention(Maker(DTYPES[dtype], "cuda"), shape, lengths, 3008, reach=reach)
        assert torch.equal(alone["out"][:count], found["out"][:count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompt_kernels_are_near(dtype: str) -> None:
    make, most = Maker(DTYPES[dtype], "cuda"), NEAR[dtype]
    x, w, wide = make.normal(300, 1024), make.weights(1536, 1024), make.weights(2 * 1536, 1024)
    out, inner = make.poisoned(300, 1536), make.poisoned(300, 1536)
    prompt_linear(x, w, None, None, out)
    assert error(out, reference.linear(x.double(), w.double())) < most
    prompt_gate_up(x, wide, inner)
    assert error(inner, reference.swiglu(x.double(), wide.double())) < most
    bounds, down, residual = (
        tile_bounds(1536, 1, 16),
        make.weights(512, 1536),
        make.normal(300, 512),
    )
    ref = residual.double() + reference.tile_tree(inner.double(), down.double(), bounds)
    prompt_down(inner, down, residual, bounds=bounds, group=1,
                waiting=waiting_room(make, 300, 512, 16))  # fmt: skip
    assert error(residual, ref) < most
    for shape in (Heads(8, 2, 128, 128), Heads(4, 4, 64, 32, window=100)):
        found = run_prompt_attention(make, shape, 333, 300, 640)
        assert error(found["out"], found["ref"]) < NEAR[dtype]
        assert torch.equal(found["values"], found["ref_values"])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "bfloat16") for name in HEADS), ("256 wide", "float32"),
     ("64 queries, 256 wide", "float32")],
)  # fmt: skip
def test_attention_is_near_at_the_borders_of_what_it_takes(name: str, dtype: str) -> None:
    errors = attention_errors(Maker(DTYPES[dtype], "cuda"), HEADS[name])
    assert too_far(errors, NEAR[dtype]) == {}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", MATRICES)
def test_products_of_odd_sizes_are_near(name: str, dtype: str) -> None:
    errors = matrix_errors(Maker(DTYPES[dtype], "cuda"), *MATRICES[name])
    assert too_far(errors, NEAR[dtype] if name != "one number" else 2 * TOLERANCE[dtype]) == {}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", TREES)
def test_trees_of_as_many_tiles_as_there_may_be_are_near(name: str, dtype: str) -> None:
    errors = tree_errors(Maker(DTYPES[dtype], "cuda"), *TREES[name])
    assert too_far(errors, NEAR[dtype]) == {}


@pytest.mark.parametrize("shape", [Heads(32, 8, 128, 128), Heads(8, 1, 256, 64, window=100)],
                         ids=["128 wide", "256 wide, window"])  # fmt: skip
@pytest.mark.parametrize(("dtype", "kv_dtype"),
                         [("bfloat16", "float32"), ("float16", "float32"), ("float32", "bfloat16"),
                          ("bfloat16", "float16"), ("float16", "bfloat16")])  # fmt: skip
def test_a_cache_of_another_format_is_near_and_its_bits_depend_on_no_company(
    dtype: str, kv_dtype: str, shape: Heads
) -> None:
    make, kept = Maker(DTYPES[dtype], "cuda"), DTYPES[kv_dtype]
    most = max(TOLERANCE[dtype], TOLERANCE[kv_dtype])
    assert too_far(attention_errors(make, shape, kv_dtype=kept), most) == {}
    lengths = [0, 31, 32, 127, 128, 255, 256, 700]
    found = run_attention(Maker(make.dtype, "cuda"), shape, lengths, 720, kv_dtype=kept)
    alone = run_attention(Maker(make.dtype, "cuda"), shape, lengths, 720, reach=256, kv_dtype=kept)
    assert torch.equal(alone["out"][:6], found["out"][:6])


ROWS = (2125, 1000, 640, 300, 200, 130, 65, 40)
"""Of prompts: each meets blocks of other sizes somewhere."""
MLPS = {"8b": (4096, 14336, 16, 1), "7b, uneven tiles": (4096, 11008, 16, 1),
        "135m": (576, 1536, 16, 1), "uneven groups": (520, 1410, 11, 2),
        "rows of 6 bytes more": (72, 16 * 35, 16, 1), "a tile": (72, 200, 1, 1)}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MLPS)
def test_down_has_the_bits_of_its_tiles_by_themselves(name: str, dtype: str) -> None:
    (n, k, tiles, group), make = MLPS[name], Maker(DTYPES[dtype], "cuda")
    x, w, before = make.normal(ROWS[1], k), make.weights(n, k), make.normal(ROWS[1], n)
    bounds = tile_bounds(k, group, tiles)
    expected = (tiles_alone(x, w, bounds) + before.float()).to(make.dtype)
    waiting = waiting_room(make, ROWS[1], n, tiles)
    for rows in (*ROWS[1:], 1):
        for room in (waiting, None if waiting is None else waiting[: len(waiting) // 7]):
            out = before[:rows].clone()
            prompt_down(x[:rows], w, out, bounds=bounds, group=group, waiting=room)
            assert torch.equal(out, expected[:rows])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("n", "k"), [(6144, 4096), (4096, 4096), (1000, 704), (1000, 417)])
def test_a_plain_product_has_the_same_bits_in_the_blocks_of_any_rows(
    n: int, k: int, dtype: str
) -> None:
    make, most = Maker(DTYPES[dtype], "cuda"), ROWS[0]
    x, w, before = make.normal(most, k), make.weights(n, k), make.normal(most, n)
    for bias in (None, make.normal(n)):
        for joined in (None, before):
            expected = make.poisoned(most, n)
            in_large_blocks(x, w, bias, joined, expected)
            for rows in ROWS:
                out = make.poisoned(rows, n)
                prompt_linear(x[:rows], w, bias, None if joined is None else joined[:rows], out)
                assert torch.equal(out, expected[:rows])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("n", "k"), [(14336, 4096), (1000, 416), (1000, 417)])
def test_gate_and_up_have_the_same_bits_in_other_blocks(n: int, k: int, dtype: str) -> None:
    make = Maker(DTYPES[dtype], "cuda")
    x, w = make.normal(1000, k), make.weights(2 * n, k)
    outs = [make.poisoned(1000, n) for _ in range(3)]
    narrow = PromptTiling(128, 64, 64, warps=4, stages=3, copies=False, programs=2)
    prompt_gate_up(x, w, outs[0])
    by_pointers = replace(gate_up_tiling(2, card_at(0), 1000, n), copies=False)
    prompt_gate_up(x, w, outs[1], tiling=by_pointers)
    prompt_gate_up(x, w, outs[2], tiling=narrow)
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    for rows in ROWS[1:]:
        out = make.poisoned(rows, n)
        prompt_gate_up(x[:rows], w, out)
        assert torch.equal(out, outs[0][:rows])


def test_greedy_takes_the_first_of_the_largest() -> None:
    logits = torch.randn(3, 128256, device="cuda")
    logits[0, [77, 100000]] = 9.0
    tokens, positions = run_pick(Maker(torch.float32, "cuda"), logits)
    assert tokens.tolist() == [77, *logits[1:].argmax(1).tolist()]
    assert positions.tolist() == [6, 7, -1]


def test_draws_follow_the_softmax() -> None:
    """20,000 draws over 100 ids: each id's share within 5 standard deviations."""
    logits, temperature, rows = torch.randn(1, 100, device="cuda") * 2, 1.5, 20_000
    make = Maker(torch.float32, "cuda")
    tokens, _ = run_pick(make, logits.expand(rows, -1).contiguous(), [temperature] * rows, seed=3)
    wanted = (logits[0].double() / temperature).softmax(0) * rows
    found = torch.bincount(tokens[:-1].long(), minlength=100).double()
    assert bool(((found - wanted).abs() < 5 * wanted.sqrt() + 1).all())
