"""Call compiled kernels from tests: primitives by ctypes, stages on records."""

import ctypes
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from plancc.kernels.compile import Function
from plancc.kernels.formats import FORMAT_CODES
from plancc.kernels.stages import SHARED
from plancc.kernels.tables import LAYER, STEP

TORCH = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
CODES = FORMAT_CODES
_C_TYPES = {"void": None, "float32": ctypes.c_float, "int64": ctypes.c_int64}


def as_c(function: Function) -> Any:
    """The compiled function, callable with numbers."""
    result, arguments = function.signature.rstrip(")").split("(")
    types = [_C_TYPES[name.strip()] for name in arguments.split(",")]
    return ctypes.CFUNCTYPE(_C_TYPES[result], *types)(function.address)


def primitive(name: str) -> Any:
    """A primitive, callable with numbers."""
    return as_c(SHARED[name])


def empty_step(num_rows: int, **fields: Any) -> np.ndarray[Any, Any]:
    """A STEP with the shared functions and the fields given; tensors enter as their addresses."""
    shared = {name: item.address for name, item in SHARED.items()}
    rows = {"num_rows": num_rows, "num_groups": -(-num_rows // 16)}
    return _record(STEP, shared | rows | fields)


def empty_layer(**fields: Any) -> np.ndarray[Any, Any]:
    """A LAYER with the fields given."""
    return _record(LAYER, fields)


def _record(kind: Any, fields: dict[str, Any]) -> np.ndarray[Any, Any]:
    record = np.zeros(1, kind)
    for name, value in fields.items():
        if isinstance(value, torch.Tensor):
            value = value.data_ptr()
        elif isinstance(value, np.ndarray):
            value = value.ctypes.data
        record[name] = value
    return record


def run_stage(
    stage: Function, step: Any, layer: Any = None, variant: int = 0, threads: int = 1
) -> None:
    """Run a stage's shares one after another, as so many threads would."""
    layer_at = 0 if layer is None else layer.ctypes.data
    for thread in range(threads):
        as_c(stage)(thread, threads, step.ctypes.data, layer_at, variant)


def to_groups(rows: torch.Tensor) -> torch.Tensor:
    """[rows, width] as float32 groups [groups, width, 16]; rows beyond the last are 0."""
    groups = -(-len(rows) // 16)
    padded = torch.zeros(groups * 16, rows.shape[1])
    padded[: len(rows)] = rows.float()
    return padded.view(groups, 16, -1).transpose(1, 2).contiguous()


def from_groups(groups: torch.Tensor, num_rows: int) -> torch.Tensor:
    """The inverse of `to_groups`."""
    return groups.transpose(1, 2).reshape(-1, groups.shape[1])[:num_rows].contiguous()


def nearest_float32(exact: Fraction) -> np.float32:
    """The float32 nearest to a rational number, ties to even."""
    guess = np.float32(float(exact))
    near = {
        guess,
        np.nextafter(guess, np.float32(np.inf)),
        np.nextafter(guess, np.float32(-np.inf)),
    }
    return min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


def fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c, rounded once."""
    return nearest_float32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
