"""How kernels of a step follow each other without a gap.

A kernel is launched while the one before it still runs (programmatic dependent launch): it asks for
its first weights, waits until everything before it is complete and visible, then reads and writes
activations. Every program waits. Before that it may read what no kernel of the step's segment
writes (weights, where a row stands), and what was there before the kernel before the last: a
product lets the next kernel start only after it has waited itself.
"""

import os
from typing import Any

import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import kernel

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
OVERLAPS = not IS_INTERPRETED
"""Whether kernels overlap; the constexpr argument OVERLAP of each. The interpreter knows no such
thing, and runs programs one after the other."""
_INTERPRETED = tl.constexpr(IS_INTERPRETED)


def launch(
    kernel: Any, grid: tuple[int, ...], *args: Any, warps: int, stages: int = 1,
    overlaps: Any = True, **constants: Any,
) -> Any:  # fmt: skip
    """Run a kernel of this room on the current stream.

    overlaps: it may be launched while the one before still runs. Not where it follows what is no
    kernel of this stream, such as an event of another.
    No product and sum are fused unasked: the same expression gives the same bits everywhere.
    """
    if IS_INTERPRETED:
        return kernel[grid](*args, OVERLAP=False, **constants)
    return kernel[grid](*args, OVERLAP=overlaps, num_warps=warps, num_stages=stages,
                        launch_pdl=overlaps, enable_fp_fusion=False, **constants)  # fmt: skip


@kernel
def wait_for_previous(OVERLAP: tl.constexpr) -> Any:
    """Block until the kernels before this one are complete."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()


@kernel
def let_next_start(OVERLAP: tl.constexpr) -> Any:
    """Allow the next kernel's programs to take what room is left."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()


@kernel
def product(a: tensor, b: tensor, acc: tensor) -> Any:
    """acc + a b in float32. The interpreter cannot multiply bfloat16: widening is exact."""
    if _INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="ieee")
