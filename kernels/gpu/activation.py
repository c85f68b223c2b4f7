"""What stands between the two halves of an MLP."""

from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel


@kernel
def silu(x: tensor) -> Any:
    """x / (1 + exp(-x))."""
    return x / (1.0 + tl.exp(-x))
