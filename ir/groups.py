"""What a TP group adds to a stage: who sends rows to whom, how many bytes, and in what buffers.

In a `replicated` group every rank runs the mixer and keeps KV; after the MLP each sends its partial
rows to every other. In an `owned` group rank 0 has mixer and KV: it sends normed rows to the others
and they return their partial rows. A partial row is fp32, one for each maximal subtree of the tile
tree inside the rank's share (design.md section 9).
"""

from collections.abc import Sequence
from typing import Literal

from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import LINK_SLOTS, hidden_row_bytes
from plancc.ir.tiles import Span, subtree_roots

Mixer = Literal["single", "replicated", "owned"]
Pair = tuple[int, int]

EXCHANGE_LAUNCHES = 1
"""Kernels that a cut MLP adds: the sum over the tree, once partial rows have come."""

_FP32 = 4


def share_roots(shares: Sequence[Span]) -> tuple[int, ...]:
    """Partial rows that each rank sends for one row of the step; shares cover all tiles."""
    tiles = shares[-1][1]
    return tuple(len(subtree_roots(tiles, share)) for share in shares)


def partial_row_bytes(model: ModelShape, roots: int) -> int:
    return roots * model.hidden_size * _FP32


def holders(mixer: Mixer, num_ranks: int) -> range:
    """Ranks of a stage that hold residual rows, and so mixer, KV and state."""
    return range(num_ranks if mixer == "replicated" else 1)


def hop_pairs(sender: tuple[Mixer, int], target: tuple[Mixer, int]) -> tuple[Pair, ...]:
    """(rank of the sending stage, rank of the target) of every transfer of a hop.

    Each given as (mixer, number of ranks). Every rank that holds rows gets them from its peer.
    """
    sources = len(holders(*sender))
    return tuple((rank % sources, rank) for rank in holders(*target))


def spread_pairs(mixer: Mixer, num_ranks: int) -> tuple[Pair, ...]:
    """Within the first stage: rank 0 embeds, the other holders get its rows."""
    return tuple((0, rank) for rank in holders(mixer, num_ranks) if rank > 0)


def exchange_pairs(mixer: Mixer, num_ranks: int) -> tuple[Pair, ...]:
    """(from, to) of the partial rows after each cut MLP."""
    if mixer == "owned":
        return tuple((rank, 0) for rank in range(1, num_ranks))
    ranks = range(num_ranks if mixer == "replicated" else 0)
    return tuple((one, two) for one in ranks for two in ranks if one != two)


def exchange_buffer_bytes(
    model: ModelShape, rows: int, shares: Sequence[Span], mixer: Mixer, rank: int
) -> int:
    """Bytes for a rank's partial rows and those it receives; normed rows too where they travel."""
    return partial_buffer_bytes(model, rows, share_roots(shares), mixer, rank)


def partial_buffer_bytes(
    model: ModelShape, rows: int, roots: Sequence[int], mixer: Mixer, rank: int
) -> int:
    """The same, by the partial rows that each rank sends."""
    if mixer == "single":
        return 0
    held = sum(roots) if rank in holders(mixer, len(roots)) else roots[rank]
    row = partial_row_bytes(model, held)
    row += hidden_row_bytes(model) if mixer == "owned" else 0
    return LINK_SLOTS * rows * row


def hop_buffer_ends(
    mixer: Mixer, num_ranks: int, rank: int, *, stage: int, num_stages: int, head_first: bool
) -> int:
    """Buffers for hidden rows that a rank has: arriving, leaving, spread, and back to a head first.

    Rows that leave to several ranks leave from one buffer.
    """
    is_first, is_last = stage == 0, stage == num_stages - 1
    ends = 0
    if rank in holders(mixer, num_ranks):
        ends += (not is_first) + (not is_last)
        ends += is_first and bool(spread_pairs(mixer, num_ranks))
    if rank == 0 and head_first and num_stages > 1:
        ends += is_first + is_last
    return ends
