"""tile_tree/1 for prompt rows: the sum over an MLP's tiles, of one device and of a TP group."""

from collections.abc import Sequence

import torch

from plancc.kernels.gpu.card import card_of
from plancc.kernels.gpu.prompt_tilings import down_tiling
from plancc.kernels.gpu.prompt_tree import prompt_tree

Span = tuple[int, int]


def prompt_down(
    x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor, *, bounds: tuple[int, ...],
    group: int, waiting: torch.Tensor | None,
) -> None:  # fmt: skip
    """residual [rows, N] += x [rows, K] times w [N, K], rounded once; bounds as in join.join.

    waiting: float32, scratch for sums of tiles, what is in it does not matter; the more, the more
    programs run (prompt_tilings.waiting_size). None where the model's numbers are float32.
    """
    how = down_tiling(x.element_size(), card_of(x.device), len(x), len(w))
    prompt_tree(x, w, None, residual, residual, bounds=bounds, group=group, tiling=how,
                waiting=waiting)  # fmt: skip


def prompt_partials(
    x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, roots: Sequence[Span],
    bounds: tuple[int, ...], group: int, waiting: torch.Tensor | None,
) -> None:  # fmt: skip
    """out float32 [rows, roots, N] from x [rows, K] and w [N, K]: see partials.partials.

    A launch for each root, of the same blocks over K in the same order as in prompt_down.
    """
    first, end = roots[0][0], roots[-1][1]
    columns = bounds[end] - bounds[first]
    assert w.shape[1] == columns, f"{w.shape[1]} columns for tiles [{first}, {end})"
    how = down_tiling(x.element_size(), card_of(x.device), len(x), len(w))
    for number, root in enumerate(roots):
        at = slice(bounds[root[0]] - bounds[first], bounds[root[1]] - bounds[first])
        prompt_tree(x[:, at], w[:, at], None, None, out[:, number], bounds=bounds, group=group,
                    tiling=how, waiting=waiting, node=root)  # fmt: skip
