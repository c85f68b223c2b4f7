"""norm, linear and mlp against float64, and their rows against each other."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from plancc_kernel_calls import (
    CODES,
    TORCH,
    empty_layer,
    empty_step,
    from_groups,
    run_stage,
    to_groups,
)

from plancc.ir.tiles import MAX_TILES, subtree_roots, tile_bounds, tree_nodes
from plancc.kernels import reference
from plancc.kernels.linear import HEAD, OUTPUT, QKV, linear_groups, linear_rows
from plancc.kernels.mlp import down_groups, down_rows, gate_up_groups, gate_up_rows
from plancc.kernels.norm import FINAL, LAST_ROW, norm_groups, norm_rows
from plancc.kernels.roots import sum_groups, sum_rows

# One rounding to the format: half a unit in the last place. The float32 sums before it add at most
# one unit now and then, which moves a result to the next number of the format.
TOLERANCE = {"float32": 3e-6, "bfloat16": 2.0**-7, "float16": 2.0**-10}
FORMATS = list(TORCH)


def _rows(seed: int, *shape: int, dtype: str = "float32") -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(TORCH[dtype]).float()


def _stored(values: torch.Tensor, dtype: str) -> torch.Tensor:
    return values.to(TORCH[dtype]).contiguous()


def _near(found: torch.Tensor, exact: Any, dtype: str) -> None:
    exact = torch.from_numpy(np.asarray(exact))
    error = float((found.double() - exact).abs().max())
    assert error <= TOLERANCE[dtype] * float(exact.abs().max())
    assert torch.equal(found, found.to(TORCH[dtype]).float()), "a result is not of the format"


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 576), (20, 33), (5, 1)])
def test_norms_of_both_phases_are_near_float64(rows: int, width: int, dtype: str) -> None:
    x, gain = _rows(1, rows, width, dtype=dtype), _stored(1 + 0.1 * _rows(2, width), dtype)
    exact = reference.rms_norm(x.double().numpy(), gain.double().numpy(), 1e-5)
    for is_group in (False, True):
        residual = to_groups(x) if is_group else x.contiguous()
        normed = torch.zeros_like(residual)
        step = empty_step(num_rows=rows, hidden_size=width, code=CODES[dtype], norm_eps=1e-5,
                          residual=residual, normed=normed, final_norm=gain)  # fmt: skip
        run_stage(norm_groups if is_group else norm_rows, step, empty_layer(), FINAL, threads=2)
        _near(from_groups(normed, rows) if is_group else normed, exact, dtype)


def test_the_last_prompt_row_is_normed_as_a_row_of_decode() -> None:
    x, gain = _rows(1, 20, 48), 1 + 0.1 * _rows(2, 48)
    normed, scratch = torch.zeros(20, 48), torch.zeros(64, 48)
    step = empty_step(num_rows=20, hidden_size=48, norm_eps=1e-5, residual=x, normed=normed,
                      final_norm=gain)  # fmt: skip
    run_stage(norm_rows, step, empty_layer(), FINAL)
    grouped = to_groups(x)
    step["residual"], step["normed"] = grouped.data_ptr(), scratch.data_ptr()
    run_stage(norm_rows, step, empty_layer(), LAST_ROW)
    assert torch.equal(scratch[0], normed[19])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("rows", "width", "height"), [(1, 64, 60), (7, 576, 90), (33, 300, 31)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_both_phases_are_near_float64(
    rows: int, width: int, height: int, has_bias: bool, dtype: str
) -> None:
    x = _rows(1, rows, width, dtype=dtype)
    matrix, bias = _stored(_rows(2, height, width), dtype), _stored(_rows(3, height), dtype)
    exact = reference.linear(x.double().numpy(), matrix.double().numpy(),
                             bias.double().numpy() if has_bias else 0.0)  # fmt: skip
    layer = empty_layer(qkv=matrix, qkv_bias=bias if has_bias else 0, qkv_width=height)
    for is_group in (False, True):
        normed = to_groups(x) if is_group else x.contiguous()
        out = to_groups(torch.zeros(rows, height)) if is_group else torch.zeros(rows, height)
        step = empty_step(num_rows=rows, hidden_size=width, code=CODES[dtype], normed=normed,
                          qkv=out)  # fmt: skip
        run_stage(linear_groups if is_group else linear_rows, step, layer, QKV, threads=3)
        _near(from_groups(out, rows) if is_group else out, exact, dtype)


@pytest.mark.parametrize("dtype", FORMATS)
def test_the_output_projection_is_added_to_the_residual_and_rounded_once(dtype: str) -> None:
    rows, width, heads = 5, 48, 4
    attended, residual = _rows(1, rows, 64, dtype=dtype), _rows(2, rows, width, dtype=dtype)
    matrix = _stored(_rows(3, width, 64), dtype)
    exact = residual.double().numpy() + attended.double().numpy() @ matrix.double().numpy().T
    layer = empty_layer(output=matrix, num_heads=heads, head_dim=16)
    for is_group in (False, True):
        shape = to_groups if is_group else torch.clone
        x, out = shape(attended), shape(residual)
        step = empty_step(num_rows=rows, hidden_size=width, code=CODES[dtype], attended=x,
                          residual=out)  # fmt: skip
        run_stage(linear_groups if is_group else linear_rows, step, layer, OUTPUT, threads=2)
        _near(from_groups(out, rows) if is_group else out, exact, dtype)


def test_logits_of_a_16_bit_model_are_not_rounded() -> None:
    x, matrix = _rows(1, 2, 64, dtype="bfloat16"), _stored(_rows(2, 50, 64), "bfloat16")
    logits = torch.zeros(2, 50)
    step = empty_step(num_rows=2, num_logits=2, hidden_size=64, code=CODES["bfloat16"], normed=x,
                      head=matrix, vocab_size=50, logits=logits)  # fmt: skip
    run_stage(linear_rows, step, empty_layer(), HEAD, threads=2)
    _near(logits, x.double().numpy() @ matrix.double().numpy().T, "float32")


def _mlp_layer(
    gate_up: torch.Tensor, down: torch.Tensor, inner: int, tiles: int, share: tuple[int, int]
) -> tuple[Any, list[Any]]:
    """A LAYER for a share of the tiles, and what must outlive it."""
    bounds = np.array(tile_bounds(inner, 1, tiles), np.int64)
    merges = np.zeros(tiles, np.int64)
    for first, end in tree_nodes(0, tiles):
        merges[end - 1] += end - first > 1 and share[0] <= first and end <= share[1]
    own, counts = bounds[share[0] : share[1] + 1] - bounds[share[0]], merges[slice(*share)].copy()
    columns = slice(bounds[share[0]], bounds[share[1]])
    kept = [gate_up[:, columns].contiguous(), down[:, columns].contiguous(), own, counts]
    return empty_layer(gate_up=kept[0], down=kept[1], inner=own[-1], num_tiles=len(counts),
                       tile_bounds=own, tile_merges=counts), kept  # fmt: skip


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("rows", "hidden", "inner", "tiles"), [
    (1, 64, 96, 16), (6, 50, 200, 7), (19, 33, 300, 1), (2, 8, 64, MAX_TILES),
])  # fmt: skip
def test_the_mlp_of_both_phases_is_near_float64(
    rows: int, hidden: int, inner: int, tiles: int, dtype: str, has_bias: bool
) -> None:
    x, residual = _rows(1, rows, hidden, dtype=dtype), _rows(2, rows, hidden, dtype=dtype)
    gate_up = _stored(_rows(3, 2, inner, hidden) / hidden**0.5, dtype)
    down = _stored(_rows(4, hidden, inner) / inner**0.5, dtype)
    layer, kept = _mlp_layer(gate_up, down, inner, tiles, (0, tiles))
    gate, up = gate_up.double().numpy()
    inside = reference.swiglu(x.double().numpy(), gate, up)
    exact = residual.double().numpy() + inside @ down.double().numpy().T
    if has_bias:
        bias, last = _stored(_rows(5, 2, inner), dtype), _stored(_rows(6, hidden), dtype)
        layer["gate_up_bias"], layer["down_bias"] = bias.data_ptr(), last.data_ptr()
        pairs = zip((gate, up), bias.double().numpy(), strict=True)
        sums = [x.double().numpy() @ matrix.T + shift for matrix, shift in pairs]
        inside = sums[0] / (1 + np.exp(-sums[0])) * sums[1]
        exact = residual.double().numpy() + inside @ down.double().numpy().T
        exact += last.double().numpy()
    for is_group in (False, True):
        shape = to_groups if is_group else torch.clone
        normed, out = shape(x), shape(residual)
        activated = shape(torch.zeros(rows, inner))
        step = empty_step(num_rows=rows, hidden_size=hidden, code=CODES[dtype], normed=normed,
                          residual=out, activated=activated)  # fmt: skip
        run_stage(gate_up_groups if is_group else gate_up_rows, step, layer, threads=2)
        run_stage(down_groups if is_group else down_rows, step, layer, threads=2)
        _near(from_groups(activated, rows) if is_group else activated, inside, dtype)
        _near(from_groups(out, rows) if is_group else out, exact, dtype)
    assert kept


def _roots(
    x: torch.Tensor, down: torch.Tensor, tiles: int, share: tuple[int, int], is_group: bool
) -> torch.Tensor:
    """The roots of a share, [roots, rows, hidden]."""
    (rows, inner), hidden = x.shape, down.shape[0]
    layer, kept = _mlp_layer(torch.zeros(2, inner), down, inner, tiles, share)
    bounds = tile_bounds(inner, 1, tiles)
    own = x[:, bounds[share[0]] : bounds[share[1]]].contiguous()
    activated = to_groups(own) if is_group else own
    count = len(subtree_roots(tiles, share))
    partials = torch.full((rows, count, hidden), torch.nan)
    step = empty_step(num_rows=rows, hidden_size=hidden, activated=activated, partials=partials)
    run_stage(down_groups if is_group else down_rows, step, layer, threads=2)
    assert kept
    return partials.transpose(0, 1).contiguous()


@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.parametrize("borders", [(0, 8, 16), (0, 5, 16), (0, 1, 4, 11, 16), (0, 15, 16)])
def test_shares_yield_roots_that_add_to_the_bits_of_the_whole(
    borders: tuple[int, ...], is_group: bool
) -> None:
    tiles, rows, hidden, inner = 16, 3, 20, 160
    x, down = _rows(1, rows, inner), _rows(2, hidden, inner)
    roots: dict[tuple[int, int], torch.Tensor] = {}
    for share in pairwise(borders):
        found = _roots(x, down, tiles, share, is_group)
        spans = subtree_roots(tiles, share)
        bounds = tile_bounds(inner, 1, tiles)
        columns = [(bounds[first], bounds[end]) for first, end in spans]
        exact = reference.tile_roots(x.double().numpy(), down.double().numpy(), columns)
        _near(found, exact, "float32")
        roots |= dict(zip(spans, found, strict=True))
    for first, end in tree_nodes(0, tiles):
        middle = (first + end + 1) // 2
        if (first, end) not in roots and (first, middle) in roots and (middle, end) in roots:
            roots[(first, end)] = roots[(first, middle)] + roots[(middle, end)]
    assert torch.equal(roots[(0, tiles)], _roots(x, down, tiles, (0, tiles), is_group)[0])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.parametrize("borders", [(0, 8, 16), (0, 5, 9, 16), (0, 1, 4, 11, 16)])
def test_a_rank_adds_the_roots_of_all_to_the_bits_of_one_device(
    borders: tuple[int, ...], is_group: bool, dtype: str
) -> None:
    """With a large bias, which must be in the sum once, and rows that fill no whole group."""
    tiles, rows, hidden, inner = 16, 19, 150, 160
    x, down = _rows(1, rows, inner), _rows(2, hidden, inner)
    residual, bias = _rows(3, rows, hidden, dtype=dtype), _stored(_rows(4, 1, hidden) * 500, dtype)
    shape = to_groups if is_group else torch.clone
    layer, kept = _mlp_layer(torch.zeros(2, inner), _stored(down, dtype), inner, tiles, (0, tiles))
    layer["down_bias"] = bias.data_ptr()
    whole, activated = shape(residual), shape(x)
    step = empty_step(num_rows=rows, hidden_size=hidden, activated=activated, residual=whole,
                      code=CODES[dtype])  # fmt: skip
    run_stage(down_groups if is_group else down_rows, step, layer, threads=2)
    parts, table, merges = [], [], []
    for share in pairwise(borders):
        own, more = _mlp_layer(torch.zeros(2, inner), _stored(down, dtype), inner, tiles, share)
        bounds, spans = tile_bounds(inner, 1, tiles), subtree_roots(tiles, share)
        mine = shape(x[:, bounds[share[0]] : bounds[share[1]]].contiguous())
        parts.append(torch.full((rows, len(spans), hidden), torch.nan))
        step = empty_step(num_rows=rows, hidden_size=hidden, activated=mine,
                          code=CODES[dtype], partials=parts[-1])  # fmt: skip
        run_stage(down_groups if is_group else down_rows, step, own, threads=3)
        for at, (first, end) in enumerate(spans):
            stride = len(spans) * hidden * 4
            table.append((parts[-1].data_ptr() + at * hidden * 4, stride))
            merges.append(sum(b == end and a < first for a, b in tree_nodes(0, tiles)))
        assert more
    found = shape(residual)
    roots, counts = np.array(table, np.int64), np.array(merges, np.int64)
    step = empty_step(num_rows=rows, hidden_size=hidden, residual=found, code=CODES[dtype],
                      roots=roots, num_roots=len(table), root_merges=counts,
                      sum_bias=bias)  # fmt: skip
    run_stage(sum_groups if is_group else sum_rows, step, threads=2)
    back = from_groups if is_group else lambda rows_, _: rows_
    assert torch.equal(back(found, rows), back(whole, rows))
    assert kept


@pytest.mark.parametrize("is_group", [False, True])
def test_a_rows_bits_do_not_depend_on_its_neighbours_or_its_place(is_group: bool) -> None:
    rows, width, height = 37, 300, 70
    x, matrix = _rows(1, rows, width), _rows(2, height, width)
    layer = empty_layer(qkv=matrix, qkv_width=height)

    def product(part: torch.Tensor, threads: int) -> torch.Tensor:
        shape = to_groups if is_group else torch.clone
        normed, out = shape(part), shape(torch.zeros(len(part), height))
        step = empty_step(
            num_rows=len(part),
            hidden_size=width,
            normed=normed,
            qkv=out,
        )
        stage = linear_groups if is_group else linear_rows
        run_stage(stage, step, layer, QKV, threads=threads)
        return from_groups(out, len(part)) if is_group else out

    whole = product(x, 1)
    assert torch.equal(whole, product(x, 5))
    for first, end in ((0, 1), (3, 20), (36, 37)):
        assert torch.equal(whole[first:end], product(x[first:end].contiguous(), 2))
