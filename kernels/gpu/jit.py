"""Triton's decorator with types. A parameter that is no constant is annotated `tensor`."""

from collections.abc import Callable, Sequence
from typing import Any

import triton
from triton.experimental import gluon


def kernel(source: Callable[..., Any]) -> Any:
    """A function that kernels call."""
    return triton.jit(source)


def entry(unspecialized: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """A kernel that is launched. What it computes may not depend on the value of a name given:
    the compiler would make a kernel of its own for 1, and for multiples of 16."""
    return triton.jit(do_not_specialize=list(unspecialized))  # type: ignore[no-any-return]


def gluon_kernel(source: Callable[..., Any]) -> Any:
    """A function that Gluon kernels call: Triton with layouts and shared memory in plain sight."""
    return gluon.jit(source)


def gluon_entry(unspecialized: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """As `entry`."""
    return gluon.jit(do_not_specialize=list(unspecialized))  # type: ignore[no-any-return]
