"""What the GPU kernels compute, plainly, in PyTorch: the oracle of their tests, never run.

Rows are [rows, width], float64 throughout. Nothing is rounded; a test says how far rounding leads.
"""

import torch

Tensor = torch.Tensor


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gain."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [rows, K] times w [N, K], plus bias [N]."""
    product = x @ w.T
    return product if bias is None else product + bias


def swiglu(x: Tensor, w: Tensor) -> Tensor:
    """silu(x gate) * (x up), w: gate, then up."""
    gate, up = (x @ w.T).chunk(2, -1)
    return gate * torch.sigmoid(gate) * up


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor, factor: float = 1.0) -> Tensor:
    """x [rows, heads, head_dim]: pairs (i, i + n) for n = len(inv_freq); the rest is kept."""
    n = len(inv_freq)
    angles = positions[:, None, None] * inv_freq
    cosines, sines = angles.cos() * factor, angles.sin() * factor
    a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines, rest], -1)


def attention(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, window: int | None = None
) -> Tensor:
    """Causal attention of q [rows, heads, dim] over k, v [keys, kv_heads, dim] at 0, 1, ...

    A row at position p sees the keys of (p - window, p].
    """
    shared = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = torch.einsum("rhd,khd->rhk", q, keys) / q.shape[-1] ** 0.5
    at = torch.arange(len(k), device=k.device)
    is_seen = at <= positions[:, None]
    if window is not None:
        is_seen &= at > positions[:, None] - window
    weights = scores.masked_fill(~is_seen[:, None, :], float("-inf")).softmax(-1)
    return torch.einsum("rhk,khd->rhd", weights, values)


def tile_tree(x: Tensor, down: Tensor, bounds: tuple[int, ...]) -> Tensor:
    """x times down: each tile's partial, added as the tree [a, b) -> (a + b + 1) // 2 says."""

    def node(first: int, end: int) -> Tensor:
        if end - first == 1:
            columns = slice(bounds[first], bounds[end])
            return x[:, columns] @ down[:, columns].T
        middle = (first + end + 1) // 2
        return node(first, middle) + node(middle, end)

    return node(0, len(bounds) - 1)
