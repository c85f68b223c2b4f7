"""How kernels of a step follow each other without a gap.

On a card that can do so a kernel is launched while the one before it still runs (programmatic
dependent launch): it asks for its first weights, waits until everything before it is complete and
visible, then reads and writes activations. Every program waits. Before that it may read what no
kernel of the step's segment writes (weights, where a row stands), and what was there before the
kernel before the last: a product lets the next kernel start only after it has waited itself.
"""

import os
from typing import Any

import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.card import card_at
from plancc.kernels.gpu.jit import kernel

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_INTERPRETED = tl.constexpr(IS_INTERPRETED)
_Tensor = torch.Tensor
_COMPILED: dict[Any, tuple[Any, list[Any]]] = {}  # and the constants in the kernel's order


def launch(
    kernel: Any, grid: tuple[int, ...], *args: Any, warps: int, stages: int = 1,
    overlaps: Any = True, **constants: Any,
) -> None:  # fmt: skip
    """Run a kernel of this room on the current stream.

    overlaps: it may be launched while the one before still runs, where the card can do so. Not
    where it follows what is no kernel of this stream, such as an event of another.
    No product and sum are fused unasked: the same expression gives the same bits everywhere.

    What was compiled is kept for arguments of the same kinds: to find it by them takes a third of
    the time that Triton needs.
    """
    if IS_INTERPRETED:
        kernel[grid](*args, OVERLAP=False, **constants)
        return
    ordinal = torch.cuda.current_device()
    overlaps = overlaps and card_at(ordinal).can_overlap
    constants["OVERLAP"] = overlaps
    key = (id(kernel), ordinal, warps, stages, *constants, *constants.values(), *_kinds(args))
    known = _COMPILED.get(key)
    if known is None:
        values = [constants[name] for name in kernel.arg_names[len(args) :]]
        _COMPILED[key] = kernel[grid](
            *args, num_warps=warps, num_stages=stages, launch_pdl=overlaps, enable_fp_fusion=False,
            **constants,
        ), values  # fmt: skip
        return
    compiled, values = known
    compiled[(*grid, 1, 1)[:3]](*args, *values)


def can_overlap() -> bool:
    """Whether kernels of the current device overlap. The interpreter knows no such thing, and runs
    programs one after the other."""
    return not IS_INTERPRETED and card_at(torch.cuda.current_device()).can_overlap


def _kinds(args: tuple[Any, ...]) -> list[Any]:
    """All that a compiled kernel depends on of arguments that are no constants, or more."""
    kinds: list[Any] = []
    for arg in args:
        kind = type(arg)
        if kind is _Tensor:
            kinds += arg.dtype, arg.data_ptr() % 16 == 0
        elif kind is int:
            kinds += kind, arg == 1, arg % 16 == 0, arg.bit_length() > 31
        else:
            kinds.append(kind)
            if arg is not None and kind is not float:  # a tensor descriptor
                kinds += arg.base.dtype, *arg.block_shape
    return kinds


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
