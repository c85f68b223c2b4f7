"""The next token on the device, without sorting: the largest logit, the lowest id among equals.

With a temperature, of logit / temperature + noise: Gumbel noise makes the largest a draw from the
softmax. The noise of an id is a function of (seed, position, id), so it depends on nothing that
runs beside. 24 bits of it: a token of less than e^-17 of the likeliest is never drawn.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry, kernel
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous

PIECES = 64


@kernel
def _with_noise(
    values: tensor, columns: tensor, position: tensor, temperature: tensor, seed: tensor
) -> Any:
    """Logits as they are drawn from; as they are, where the temperature is 0."""
    zeros = columns * 0
    bits, _, _, _ = tl.philox(seed, columns, zeros + position, zeros, zeros)
    uniform = ((bits.to(tl.uint32, bitcast=True) >> 8).to(tl.float32) + 0.5) * (2.0**-24)
    noise = -tl.log(-tl.log(uniform))
    is_drawn = temperature > 0
    return tl.where(is_drawn, values / tl.where(is_drawn, temperature, 1.0) + noise, values)


@entry()
def _pick(
    logits: tensor, bests: tensor, places: tensor, counters: tensor, token_ids: tensor,
    positions: tensor, temperatures: tensor, seeds: tensor, told: tensor,
    N: tl.constexpr, SPAN: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    row, piece = tl.program_id(0), tl.program_id(1)
    columns = piece * SPAN + tl.arange(0, WIDTH)
    is_in = (tl.arange(0, WIDTH) < SPAN) & (columns < N)
    values = tl.load(logits + row.to(tl.int64) * N + columns, mask=is_in, other=float("-inf"))
    is_wrong = is_in & ((values != values) | (tl.abs(values) == float("inf")))
    if temperatures is not None:
        values = _with_noise(values, columns, tl.load(positions + row) + 1,
                             tl.load(temperatures + row), tl.load(seeds + row))  # fmt: skip
    best = tl.max(tl.where(is_wrong, float("inf"), values), 0)
    place = tl.min(tl.where((values == best) & is_in, columns, N), 0)
    place = tl.where(tl.max(is_wrong.to(tl.int32), 0) > 0, -1, place)
    tl.store(bests + row * PIECES + piece, best)
    tl.store(places + row * PIECES + piece, place)
    tl.debug_barrier()
    if tl.atomic_add(counters + row, 1, sem="acq_rel") == PIECES - 1:
        tl.store(counters + row, 0)
        pieces = tl.arange(0, PIECES)
        tops = tl.load(bests + row * PIECES + pieces, cache_modifier=".cg")
        found = tl.load(places + row * PIECES + pieces, cache_modifier=".cg")
        token = tl.min(tl.where(tops == tl.max(tops, 0), found, N), 0)
        token = tl.minimum(token, N - 1)
        tl.store(token_ids + row, token)
        if told is not None:
            tl.store(told + row, token)
        if positions is not None:
            position = tl.load(positions + row)
            tl.store(positions + row, tl.where(position < 0, position, position + 1))


def pick(
    logits: torch.Tensor, bests: torch.Tensor, places: torch.Tensor, counters: torch.Tensor,
    token_ids: torch.Tensor, positions: torch.Tensor | None,
    temperatures: torch.Tensor | None = None, seeds: torch.Tensor | None = None,
    told: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """token_ids [rows]: of logits [rows, N], which follow the tokens at `positions`; the positions
    move on by one, but for those of -1. Positions may be None where no temperatures are given.
    A row whose logits are not all finite gives -1.

    temperatures: float32 [rows], 0 for the largest, and seeds: int64 [rows]; None: all the largest.
    bests: float32 and places: int32 [rows, PIECES]; counters: int32 zeros [rows], and again after.
    told: int32 [rows], a second place for the tokens: memory of the host, pinned.
    """
    num_rows, n = logits.shape
    span = -(-n // PIECES)
    launch(
        _pick, (num_rows, PIECES), logits, bests, places, counters, token_ids, positions,
        temperatures, seeds, told, N=n, SPAN=span, PIECES=PIECES,
        WIDTH=1 << (span - 1).bit_length(), warps=4,
    )  # fmt: skip
