"""Shapes at the borders of what GPU kernels take, and how far each kernel is from float64 there.

A number for each kernel by name; run in Triton's interpreter and on a card.
"""

from collections.abc import Sequence

import torch
from plancc_gpu_cases import (
    Heads,
    Maker,
    attention_reference,
    error,
    run_attention,
    run_gate_up,
    run_join,
    run_linear,
    run_prompt_attention,
    waiting_room,
)

from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_linear import prompt_linear
from plancc.kernels.gpu.tilings import tiling

HEADS = {
    "256 wide": Heads(2, 1, 256, 256),
    "64 queries, 256 wide": Heads(64, 1, 256, 256),
    "64 queries, 16 wide": Heads(64, 1, 16, 16),
    "80 wide": Heads(3, 1, 80, 80),
    "17 wide, unrotated": Heads(7, 7, 17, 0),
    "a window of 5": Heads(2, 1, 96, 96, window=5),
}
MATRICES = {"odd": (33, 67), "one number": (1, 1), "odd, one block": (101, 129), "long": (7, 513)}
TREES = {"64 tiles": (40, 131, 64), "63 tiles": (64, 77, 63), "columns": (7, 5, 5),
         "one number": (33, 1, 1)}  # fmt: skip
"""Rows of the matrix, its columns, tiles."""


def attention_errors(
    make: Maker, shape: Heads, *, kv_dtype: torch.dtype | None = None,
    lengths: Sequence[int] = (0, 1, 255, 256, 257, 300),
) -> dict[str, float]:  # fmt: skip
    """The worst row of a decode step; a chunk of a prompt."""
    found = run_attention(make, shape, list(lengths), 304, kv_dtype=kv_dtype)
    rows = [error(found["out"][row].view(shape.heads, -1),
                  attention_reference(shape, found, row, row))
            for row in range(len(lengths))]  # fmt: skip
    chunk = run_prompt_attention(make, shape, 37, 35, 80, kv_dtype=kv_dtype)
    return {"decode": max(rows, key=_or_worst), "prompt": error(chunk["out"], chunk["ref"])}


def matrix_errors(make: Maker, n: int, k: int) -> dict[str, float]:
    size, card = make.dtype.itemsize, card_of(make.normal(1).device)
    found = {
        "linear": error(*run_linear(make, 3, n, k, tiling("qkv", size, 3, k, card),
                                    has_bias=True)),
        "gate, up": error(*run_gate_up(make, 3, n, k, tiling("gate_up", size, 3, k, card))),
    }  # fmt: skip
    x, w, bias = make.normal(5, k), make.weights(2 * n, k), make.normal(n)
    out = make.poisoned(5, n)
    prompt_gate_up(x, w, out)
    found["prompt gate, up"] = error(out, reference.swiglu(x.double(), w.double()))
    out, w = make.poisoned(5, n), w[:n]
    prompt_linear(x, w, bias, None, out)
    ref = reference.linear(x.double(), w.double(), bias.double())
    return found | {"prompt linear": error(out, ref)}


def tree_errors(make: Maker, n: int, k: int, tiles: int) -> dict[str, float]:
    how = tiling("down", make.dtype.itemsize, 5, max(1, k // tiles), card_of(make.normal(1).device))
    out, ref, _ = run_join(make, 5, n, k, tiles, how, has_bias=True, steps=2)
    x, w, residual, bounds = (
        make.normal(5, k),
        make.weights(n, k),
        make.normal(5, n),
        tile_bounds(k, 1, tiles),
    )
    expected = residual.double() + reference.tile_tree(x.double(), w.double(), bounds)
    prompt_down(x, w, residual, bounds=bounds, group=1, waiting=waiting_room(make, 5, n, tiles))
    return {"decode": error(out["residual"], ref), "prompt": error(residual, expected)}


def too_far(errors: dict[str, float], most: float) -> dict[str, float]:
    """Those that are no less; NaN is not."""
    return {name: found for name, found in errors.items() if not found < most}


def _or_worst(found: float) -> float:
    return found if found == found else float("inf")
