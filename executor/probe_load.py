"""What a rank computes while links are measured: it reads weights that no cache holds.

Work, not only time: what disturbs it is seen.
"""

import time
from collections.abc import Iterator
from functools import cache
from itertools import cycle

import torch

_BLOCK = 2**16  # weights of 256 KiB


def read_blocks(count: int) -> None:
    """So many blocks of weights, one after the other, going on where the last call ended."""
    weights, places = _weights(), _places()
    for _ in range(count):
        at = next(places)
        weights[at : at + _BLOCK].sum()


def read_for(seconds: float) -> None:
    """Busy as a stage is before it sends: nothing of what sends and receives is in a near cache
    any more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        read_blocks(1)


@cache
def _places() -> Iterator[int]:
    return cycle(range(0, len(_weights()), _BLOCK))


@cache
def _weights() -> torch.Tensor:
    """64 MiB: more than caches hold. Made by the first that computes, not by whoever imports."""
    return torch.ones(2**24)
