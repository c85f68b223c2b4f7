"""What the kernels compute, plainly, in float64 numpy: the oracle of their tests, never run.

Rows are [rows, width]. Nothing is rounded; a test says how far rounding may lead.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def gather(embedding: Array, token_ids: list[int]) -> Array:
    """Rows of the embedding."""
    return embedding[token_ids]


def rms_norm(x: Array, gain: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * gain."""
    mean: Array = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(mean + eps) * gain


def linear(x: Array, matrix: Array, bias: Array | float = 0.0) -> Array:
    """x [rows, width] times matrix [height, width], plus bias [height]."""
    return x @ matrix.T + bias


def rotate(x: Array, positions: Array, inv_freq: Array, factor: float = 1.0) -> Array:
    """x [rows, heads, head_dim]: pairs (i, i + n) for n = len(inv_freq); the rest is kept."""
    n = len(inv_freq)
    angles = positions[:, None, None] * inv_freq
    cosines, sines = np.cos(angles) * factor, np.sin(angles) * factor
    a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    return np.concatenate([a * cosines - b * sines, b * cosines + a * sines, rest], axis=-1)


def attention(q: Array, k: Array, v: Array, positions: Array, window: int | None = None) -> Array:
    """Causal attention of q [rows, heads, dim] over k, v [keys, kv_heads, dim] at 0, 1, ...

    A row at position p sees the keys of (p - window, p].
    """
    shared = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    scores = np.einsum("rhd,khd->rhk", q, keys) / np.sqrt(q.shape[-1])
    at = np.arange(len(k))
    is_seen = at <= positions[:, None]
    if window is not None:
        is_seen &= at > positions[:, None] - window
    scores = np.where(is_seen[:, None, :], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Array = np.einsum("rhk,khd->rhd", weights, values)
    return mixed


def swiglu(x: Array, gate: Array, up: Array) -> Array:
    """silu(x gate) * (x up)."""
    left = linear(x, gate)
    gated: Array = left / (1 + np.exp(-left)) * linear(x, up)
    return gated


def tile_roots(x: Array, down: Array, spans: list[tuple[int, int]]) -> Array:
    """[roots, rows, height]: the sum over columns [first, end) of `down`, for each span."""
    return np.stack([x[:, first:end] @ down[:, first:end].T for first, end in spans])
