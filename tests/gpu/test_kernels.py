"""The GPU kernels on a card, against float64, at shapes of real models."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_gpu_cases import (
    DTYPES,
    TOLERANCE,
    Heads,
    Maker,
    attention_reference,
    error,
    run_attention,
    run_gate_up,
    run_join,
    run_linear,
    run_pick,
    run_prompt_attention,
)

from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_linear import prompt_gate_up, prompt_linear
from plancc.kernels.gpu.tilings import tiling

pytestmark = pytest.mark.gpu
LLAMA_8B, SMOLLM2 = (4096, 14336, 6144), (576, 1536, 960)


@pytest.mark.parametrize("sizes", [LLAMA_8B, SMOLLM2], ids=["8b", "135m"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_decode_products_are_near(rows: int, dtype: str, sizes: tuple[int, int, int]) -> None:
    hidden, inner, qkv = sizes
    make, most = Maker(DTYPES[dtype], "cuda"), 2 * TOLERANCE[dtype]
    size = make.dtype.itemsize
    out, ref = run_linear(make, rows, qkv, hidden, tiling("qkv", size, rows, hidden), has_bias=True)
    assert error(out, ref) < most
    out, ref = run_gate_up(make, rows, inner, hidden, tiling("gate_up", size, rows, hidden))
    assert error(out, ref) < most
    found, ref, _ = run_join(make, rows, hidden, inner, 16, tiling("down", size, rows, inner // 16),
                             steps=2)  # fmt: skip
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
        assert error(found["out"][row].view(shape.heads, -1), ref) < 3 * TOLERANCE[dtype]
    for count, reach in ((2, 128), (6, 256), (7, 512)):  # the same rows, in programs of other kinds
        alone = run_attention(Maker(DTYPES[dtype], "cuda"), shape, lengths, 3008, reach=reach)
        assert torch.equal(alone["out"][:count], found["out"][:count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompt_kernels_are_near(dtype: str) -> None:
    make, most = Maker(DTYPES[dtype], "cuda"), 2 * TOLERANCE[dtype]
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
    prompt_down(inner, down, residual, bounds=bounds, group=1)
    assert error(residual, ref) < most
    for shape in (Heads(8, 2, 128, 128), Heads(4, 4, 64, 32, window=100)):
        found = run_prompt_attention(make, shape, 333, 300, 640)
        assert error(found["out"], found["ref"]) < 3 * TOLERANCE[dtype]
        assert torch.equal(found["values"], found["ref_values"])


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
