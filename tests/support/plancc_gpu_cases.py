"""Cases of the GPU kernels, run in Triton's interpreter (small) and on a card (any size).

Inputs are random, never zero; outputs are poisoned before a kernel runs. A case compares with the
float64 reference by |out - ref| / |ref|.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch

from plancc.ir.tiles import split_point, tile_bounds
from plancc.ir.waiting import waiting_bytes
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.attention import attention, max_splits
from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.enter import enter
from plancc.kernels.gpu.join import join
from plancc.kernels.gpu.linear import linear
from plancc.kernels.gpu.mlp import gate_up
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.prompt_attention import prompt_attention
from plancc.kernels.gpu.prompt_linear import linear_by_pointers
from plancc.kernels.gpu.prompt_tilings import plain_tiling
from plancc.kernels.gpu.sample import PIECES, pick
from plancc.kernels.gpu.tilings import Tiling

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
TOLERANCE = {"bfloat16": 8e-3, "float16": 1e-3, "float32": 2e-6}
"""An output rounded once from inputs rounded once: a few halves of a unit in the last place, also
where there are so few numbers that all of them may be rounded as badly as can be."""
NEAR = {"bfloat16": 6e-3, "float16": 7.5e-4, "float32": 6e-6}
"""Of many numbers, on a card, which rounds to nearest: kernels/gpu/README.md derives it. A column
in 4,096 that is left out is 16e-3."""
EPS = 1e-5
POISON = float("nan")


@dataclass(frozen=True)
class Maker:
    """Random tensors of one dtype on one device."""

    dtype: torch.dtype
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)

    def normal(
        self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        return (torch.randn(shape, device=self.device) * scale).to(dtype or self.dtype)

    def weights(self, n: int, k: int) -> torch.Tensor:
        return self.normal(n, k, scale=k**-0.5)

    def poisoned(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.full(shape, POISON, dtype=dtype or self.dtype, device=self.device)

    def ints(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    def numbers(self, *numbers: int) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self.device)


def waiting_room(make: Maker, num_rows: int, n: int, tiles: int) -> torch.Tensor | None:
    """As much as a plan counts for prompt rows of an MLP of so many tiles."""
    size_bytes = waiting_bytes(tiles, num_rows, n, make.dtype.itemsize)
    return make.poisoned(size_bytes // 4, dtype=torch.float32) if size_bytes else None


def tree_of(parts: torch.Tensor) -> torch.Tensor:
    """Float32 sums of parts[0], parts[1], ... by the definition of the tree."""
    if len(parts) == 1:
        return parts[0]
    middle = split_point(0, len(parts))
    return tree_of(parts[:middle]) + tree_of(parts[middle:])


def tiles_alone(x: torch.Tensor, w: torch.Tensor, bounds: tuple[int, ...]) -> torch.Tensor:
    """float32 [rows, N]: x times w by the definition of tile_tree: a product for each tile."""
    shape = (len(bounds) - 1, x.shape[0], w.shape[0])
    parts = torch.full(shape, POISON, device=x.device)
    for part, (a, b) in zip(parts, pairwise(bounds), strict=True):
        in_large_blocks(x[:, a:b].contiguous(), w[:, a:b].contiguous(), None, None, part)
    return tree_of(parts)


def in_large_blocks(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, before: torch.Tensor | None,
    out: torch.Tensor,
) -> None:  # fmt: skip
    """As prompt_linear, in the same blocks whatever the rows, loaded by pointers."""
    tiling = plain_tiling(x.element_size(), card_of(x.device), 10**6, len(w))
    linear_by_pointers(x, w, bias, before, out, tiling=tiling)


def error(out: torch.Tensor, ref: torch.Tensor) -> float:
    """|out - ref| / |ref|; NaN where anything was left unwritten."""
    return float((out.double() - ref).norm() / ref.norm())


def entered(make: Maker, rows: torch.Tensor, gain: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a segment begins with for hidden rows [rows, N]: residual, gained, squares."""
    num_rows, n = rows.shape
    out = {
        "residual": make.poisoned(num_rows, n),
        "gained": make.poisoned(num_rows, n),
        "squares": make.poisoned(num_rows, -(-n // CHUNK), dtype=torch.float32),
    }
    half = torch.ones(1, 1, dtype=torch.float64, device=make.device)
    angles = make.poisoned(1, num_rows, 2, 1, dtype=torch.float32)
    enter(rows, None, make.ints(num_rows), out["residual"], out["gained"], out["squares"], gain,
          half, half[0], angles)  # fmt: skip
    return out


def run_linear(
    make: Maker, num_rows: int, n: int, k: int, tiling: Tiling, *, has_bias: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, reference) of the norm's rows times a matrix."""
    rows, gain, w = make.normal(num_rows, k), make.normal(k), make.weights(n, k)
    bias = make.normal(n) if has_bias else None
    out = make.poisoned(num_rows, n)
    begun = entered(make, rows, gain)
    linear(begun["gained"], begun["squares"], w, bias, out, eps=EPS, tiling=tiling)
    normed = reference.rms_norm(rows.double(), gain.double(), EPS)
    wide = None if bias is None else bias.double()
    return out, reference.linear(normed, w.double(), wide)


def run_gate_up(
    make: Maker, num_rows: int, n: int, k: int, tiling: Tiling
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, gain, w = make.normal(num_rows, k), make.normal(k), make.weights(2 * n, k)
    out = make.poisoned(num_rows, n)
    begun = entered(make, rows, gain)
    gate_up(begun["gained"], begun["squares"], w, out, eps=EPS, tiling=tiling)
    normed = reference.rms_norm(rows.double(), gain.double(), EPS)
    return out, reference.swiglu(normed, w.double())


def run_join(
    make: Maker, num_rows: int, n: int, k: int, tiles: int, tiling: Tiling, *,
    group: int = 1, has_bias: bool = False, steps: int = 1,
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:  # fmt: skip
    """(outputs, reference of the residual, the gain): x times w joins a residual."""
    x, w, gain = make.normal(num_rows, k), make.weights(n, k), make.normal(n)
    before, bias = make.normal(num_rows, n), make.normal(n) if has_bias else None
    out = {
        "residual": before.clone(),
        "gained": make.poisoned(num_rows, n),
        "squares": make.poisoned(num_rows, -(-n // CHUNK), dtype=torch.float32),
    }
    counters = make.ints(-(-n // 32))
    bounds = tile_bounds(k, group, tiles)
    for _ in range(steps):  # again: counters are as they were
        out["residual"].copy_(before)
        join(x, w, bias, out["residual"], out["gained"], out["squares"], gain, tiling=tiling,
             partials=make.poisoned(2, num_rows, n, dtype=torch.float32), counters=counters,
             bounds=bounds, group=group)  # fmt: skip
    assert not counters.any()
    ref = before.double() + reference.tile_tree(x.double(), w.double(), bounds)
    return out, ref if bias is None else ref + bias.double(), gain


@dataclass(frozen=True)
class Heads:
    """The geometry of an attention case."""

    heads: int = 4
    kv_heads: int = 2
    dim: int = 64
    rotary: int = 64
    window: int | None = None
    page: int = 16


def run_attention(
    make: Maker, shape: Heads, lengths: list[int], context: int, *, reach: int | None = None,
    order: list[int] | None = None, kv_dtype: torch.dtype | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """One decode step: row i is the token after lengths[i] cached ones in slot order[i]."""
    slots, num_rows = order or list(range(len(lengths))), len(lengths)
    per_slot = -(-context // shape.page)
    pool = (max(slots) + 1) * per_slot * shape.page
    permuted = torch.randperm(pool // shape.page, device=make.device).to(torch.int32)
    pages = permuted.view(-1, per_slot)
    planes = [make.normal(pool, shape.kv_heads, shape.dim, dtype=kv_dtype) for _ in range(2)]
    before = [plane.clone() for plane in planes]
    width = (shape.heads + 2 * shape.kv_heads) * shape.dim
    qkv, out = make.normal(num_rows, width), make.poisoned(num_rows, shape.heads * shape.dim)
    positions = torch.tensor(lengths, dtype=torch.int32, device=make.device)
    inv_freq = 10000.0 ** -(torch.arange(shape.rotary // 2, device=make.device).double()
                            / max(1, shape.rotary // 2))  # fmt: skip
    angle = positions.double()[:, None] * inv_freq
    angles = torch.stack([angle.cos(), angle.sin()], 1).float()
    shared, most = (
        shape.heads // shape.kv_heads,
        max_splits(context, shape.dim, make.dtype.itemsize),
    )
    attention(
        qkv, angles, positions, torch.tensor(slots, dtype=torch.int32, device=make.device), pages,
        *planes, out,
        make.poisoned(num_rows, shape.kv_heads, most, shared, shape.dim, dtype=torch.float32),
        make.poisoned(num_rows, shape.kv_heads, most, 2, shared, dtype=torch.float32),
        page_tokens=shape.page, capacity=context, window=shape.window, rotary_dim=shape.rotary,
        context=context, reach=reach or context,
    )  # fmt: skip
    return {
        "out": out, "qkv": qkv, "positions": positions, "pages": pages, "inv_freq": inv_freq,
        "keys": planes[0], "values": planes[1], "old_keys": before[0], "old_values": before[1],
    }  # fmt: skip


def attention_reference(
    shape: Heads, found: dict[str, torch.Tensor], row: int, slot: int
) -> torch.Tensor:
    """[heads, dim] of one row, from the planes after the step and the row's own q."""
    end = int(found["positions"][row]) + 1
    at = torch.arange(end, device=found["out"].device)
    rows = found["pages"][slot][at // shape.page].long() * shape.page + at % shape.page
    q = found["qkv"][row].view(-1, shape.dim)[None, : shape.heads].double()
    q = reference.rotate(q, found["positions"][row : row + 1].double(), found["inv_freq"])
    mixed = reference.attention(q, found["keys"][rows].double(), found["values"][rows].double(),
                                at[-1:], shape.window)  # fmt: skip
    return mixed[0]


def run_pick(
    make: Maker, logits: torch.Tensor, temperatures: list[float] | None = None, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, positions after), positions from 5, 6, ... and -1 for the last row."""
    num_rows = len(logits)
    tokens, positions = make.ints(num_rows), make.ints(num_rows)
    positions.copy_(torch.arange(5, 5 + num_rows))
    positions[-1] = -1
    drawn = {}
    if temperatures:
        drawn = {
            "temperatures": torch.tensor(temperatures, device=make.device),
            "seeds": torch.full((num_rows,), seed, dtype=torch.int64, device=make.device),
        }
    pick(logits, make.poisoned(num_rows, PIECES, dtype=torch.float32),
         make.ints(num_rows, PIECES), make.ints(num_rows), tokens, positions, **drawn)  # fmt: skip
    return tokens, positions


def run_prompt_attention(
    make: Maker, shape: Heads, first: int, num_rows: int, context: int, *,
    kv_dtype: torch.dtype | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """A chunk of a prompt whose first tokens are cached; keys and values: rows of all positions."""
    pages = torch.randperm(-(-context // shape.page), device=make.device).to(torch.int32)
    planes = [make.normal(len(pages) * shape.page, shape.kv_heads, shape.dim, dtype=kv_dtype)
              for _ in range(2)]  # fmt: skip
    width = (shape.heads + 2 * shape.kv_heads) * shape.dim
    qkv, out = make.normal(num_rows, width), make.poisoned(num_rows, shape.heads * shape.dim)
    positions = torch.arange(first, first + num_rows, device=make.device)
    inv_freq = 10000.0 ** -(torch.arange(shape.rotary // 2, device=make.device).double()
                            / max(1, shape.rotary // 2))  # fmt: skip
    angle = positions.double()[:, None] * inv_freq
    at = torch.arange(first + num_rows, device=make.device)
    rows = pages[at // shape.page].long() * shape.page + at % shape.page
    heads = qkv.view(num_rows, -1, shape.dim)
    turned = reference.rotate(heads[:, : -shape.kv_heads].double(), positions.double(), inv_freq)
    ref_keys = torch.cat([planes[0][rows[:first]].double(), turned[:, shape.heads :]])
    own = heads[:, -shape.kv_heads :].to(planes[1].dtype)
    ref_values = torch.cat([planes[1][rows[:first]], own])
    prompt_attention(
        qkv, torch.stack([angle.cos(), angle.sin()], 1).float(), pages, *planes, out,
        make.numbers(first, num_rows, 0), page_tokens=shape.page, capacity=context,
        window=shape.window, rotary_dim=shape.rotary,
    )  # fmt: skip
    mixed = reference.attention(turned[:, : shape.heads], ref_keys, ref_values.double(), positions,
                                shape.window)  # fmt: skip
    return {
        "out": out, "ref": mixed.flatten(1), "keys": planes[0][rows], "ref_keys": ref_keys,
        "values": planes[1][rows], "ref_values": ref_values,
    }  # fmt: skip
