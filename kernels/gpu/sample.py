"""The next token on the device, without sorting: the largest logit, the lowest id among equals."""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel
from plancc.kernels.gpu.launch import launch, let_next_start, wait_for_previous

PIECES = 64


@kernel
def _pick(
    logits: tensor, bests: tensor, places: tensor, counters: tensor, token_ids: tensor,
    positions: tensor,
    N: tl.constexpr, SPAN: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    let_next_start(OVERLAP)
    wait_for_previous(OVERLAP)
    row, piece = tl.program_id(0), tl.program_id(1)
    columns = piece * SPAN + tl.arange(0, WIDTH)
    is_in = (tl.arange(0, WIDTH) < SPAN) & (columns < N)
    values = tl.load(logits + row.to(tl.int64) * N + columns, mask=is_in, other=float("-inf"))
    best = tl.max(values, 0)
    place = tl.min(tl.where((values == best) & is_in, columns, N), 0)
    tl.store(bests + row * PIECES + piece, best)
    tl.store(places + row * PIECES + piece, place)
    tl.debug_barrier()
    if tl.atomic_add(counters + row, 1, sem="acq_rel") == PIECES - 1:
        tl.store(counters + row, 0)
        pieces = tl.arange(0, PIECES)
        tops = tl.load(bests + row * PIECES + pieces, cache_modifier=".cg")
        found = tl.load(places + row * PIECES + pieces, cache_modifier=".cg")
        token = tl.min(tl.where(tops == tl.max(tops, 0), found, N), 0)
        tl.store(token_ids + row, tl.minimum(token, N - 1))
        if positions is not None:
            position = tl.load(positions + row)
            tl.store(positions + row, tl.where(position < 0, position, position + 1))


def pick(
    logits: torch.Tensor, bests: torch.Tensor, places: torch.Tensor, counters: torch.Tensor,
    token_ids: torch.Tensor, positions: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """token_ids [rows] = the first id of the largest of logits [rows, N]; positions move on by one.

    bests: float32 and places: int32 [rows, PIECES]; counters: int32 zeros [rows], and again after.
    """
    num_rows, n = logits.shape
    span = -(-n // PIECES)
    launch(
        _pick, (num_rows, PIECES), logits, bests, places, counters, token_ids, positions, N=n,
        SPAN=span, PIECES=PIECES, WIDTH=1 << (span - 1).bit_length(), warps=4,
    )  # fmt: skip
