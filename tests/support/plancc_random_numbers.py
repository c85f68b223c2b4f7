"""Random numbers of any amount, seeded, never zero, at the speed of copying memory.

They are drawn once, a block of at most 64 MiB in bfloat16 for each spread; a tensor is that block
from a place of its own on, over and over. The block's length is a prime, so that no two rows begin
in the same place, and no two logits are equal, before row 33,554,393.
"""

import zlib
from collections.abc import Iterator
from math import prod
from threading import Lock

import numpy as np

from plancc.ir.dtype import ITEMSIZE

LENGTHS = (65_521, 1_048_573, 33_554_393)  # primes just below 2**16, 2**20 and 2**25
_LEAST = 1e-3  # of a number drawn, so that none is zero once it is scaled


class RandomNumbers:
    """Encoded random numbers, a block for each spread, made when first asked for."""

    def __init__(self, seed: int, dtype: str, largest: int) -> None:
        """`largest`: elements of the largest tensor."""
        self._seed, self._dtype = seed, dtype
        self._drawn = _draw(seed, _length(largest))
        self._blocks: dict[tuple[float, float, int], memoryview] = {}
        self._lock = Lock()

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[memoryview]:
        """The tensor's bytes, at most a block at a time."""
        itemsize = ITEMSIZE[self._dtype]
        block = self._block(*_spread(name, shape), _length(prod(shape)))
        start = zlib.crc32(f"{self._seed} {name}".encode()) % (len(block) // itemsize)
        source, left = start * itemsize, prod(shape) * itemsize
        while left:
            part = block[source : source + left]
            yield part
            source, left = 0, left - len(part)

    def _block(self, mean: float, deviation: float, length: int) -> memoryview:
        key = (mean, deviation, length)
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = _encoded(self._drawn[:length], mean, deviation, self._dtype)
            return self._blocks[key]


def _length(num_elements: int) -> int:
    return next((length for length in LENGTHS if length >= num_elements), LENGTHS[-1])


def _draw(seed: int, length: int) -> np.ndarray:
    drawn = np.random.default_rng([seed, length]).standard_normal(length, dtype=np.float32)
    return np.copysign(np.maximum(np.abs(drawn), np.float32(_LEAST)), drawn)


def _encoded(drawn: np.ndarray, mean: float, deviation: float, dtype: str) -> memoryview:
    """By parts that stay in the cache: this is what takes the time of a small checkpoint."""
    size, parts = 2**18, []
    for at in range(0, len(drawn), size):
        scaled = np.float32(mean) + np.float32(deviation) * drawn[at : at + size]
        if dtype == "bfloat16":  # to nearest, ties to even
            bits = scaled.view(np.uint32)
            parts.append(((bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16).astype("<u2"))
        else:
            parts.append(scaled.astype({"float32": "<f4", "float16": "<f2"}[dtype]))
    return memoryview(np.concatenate(parts)).cast("B")


def _spread(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Mean and standard deviation of a tensor's numbers."""
    if name.endswith("norm.weight"):
        return 1.0, 0.1
    if name.endswith(".bias"):
        return 0.0, 0.1
    if name == "model.embed_tokens.weight":
        return 0.0, 0.2  # small beside what the layers add, so that a tied head does not echo
    return 0.0, float(shape[1] ** -0.5)
