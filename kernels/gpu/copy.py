"""Rows from where they are to where they are read next, on this device or one that it can reach.

A kernel and no copy engine: it starts at once where it is one of many in a graph.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch

_WORDS = 4096  # a program's


@entry(["size"])
def _copy(
    source: tensor, target: tensor, size: tensor,
    WORDS: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    tl.store(target + at, tl.load(source + at, mask=at < size, other=0), mask=at < size)


def copy_rows(source: torch.Tensor, target: torch.Tensor) -> None:
    """target = source; both contiguous, of one shape and format, of a whole number of words.

    Runs on the current stream, once all that is before it there is complete.
    """
    assert source.shape == target.shape, f"{source.shape} into {target.shape}"
    words, to = _as_words(source), _as_words(target)
    launch(_copy, (-(-len(words) // _WORDS),), words, to, len(words), WORDS=_WORDS, warps=8,
           overlaps=False)  # fmt: skip


def _as_words(rows: torch.Tensor) -> torch.Tensor:
    """int32 where that is whole, else int16."""
    flat = rows.reshape(-1)
    size_bytes = flat.numel() * flat.element_size()
    return flat.view(torch.int32 if size_bytes % 4 == 0 else torch.int16)
