"""What the host says of a step, and the tokens that it starts with, to where its kernels read them.

A kernel that reads the host's pinned memory, and no copy engine: between two graphs of a stream
each change of engines takes longer than this.
"""

from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import launch

_WIDTH = 256


@entry(["size", "count"])
def _take_control(
    host: tensor, tokens: tensor, control: tensor, size: tensor, count: tensor,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, OVERLAP: tl.constexpr,
) -> Any:  # fmt: skip
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    # the host writes the same places again for later steps: what a cache kept would be old
    said = tl.load(host + at, mask=at < size, other=0, cache_modifier=".cv")
    tl.store(control + at, said, mask=at < size)
    if tokens is not None:
        drawn = tl.load(tokens + at, mask=at < count, other=0, cache_modifier=".cv")
        tl.store(control + FIRST + at, drawn, mask=at < count)


def take_control(
    host: torch.Tensor, tokens: torch.Tensor | None, control: torch.Tensor, *, first: int
) -> None:
    """control[: size] = host [size], then control[first : first + count] = tokens [count].

    int32; host is pinned, tokens are too or lie on the device; size is at most `first` where there
    are tokens. Runs on the current stream, once all that is before it there is complete.
    """
    size, count = len(host), len(tokens) if tokens is not None else 0
    assert not count or size <= first, f"{size} numbers before place {first}"
    programs = -(-max(size, count) // _WIDTH)
    launch(_take_control, (programs,), host, tokens, control, size, count, FIRST=first,
           WIDTH=_WIDTH, warps=4, overlaps=False)  # fmt: skip
