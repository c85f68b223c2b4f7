"""Rotary frequencies of a model: plain, linear, dynamic, llama3 and yarn.

Formulas are those of the papers as Hugging Face's modeling_rope_utils applies them. Frequencies are
float64, correctly rounded from 40 digits: every host has the same ones, so every stage rotates by
the same bits. Cosines and sines are made in the step (kernels/rotary.py).
"""

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, assert_never

import numpy as np

from plancc.ir.errors import BadInput
from plancc.ir.manifest import Rope, RopeScaling

Frequencies = np.ndarray[Any, np.dtype[np.float64]]
_EXACT = Context(prec=40)


@dataclass(frozen=True)
class RopeTable:
    """Angle i of position p is p * inv_freq[i]; cosine and sine are multiplied by the factor."""

    inv_freq: Frequencies
    attention_factor: float = 1.0


def rope_table(rope: Rope, *, rotary_dim: int, max_context: int, context: int) -> RopeTable:
    """Frequencies [rotary_dim / 2] of one set of parameters.

    max_context: the model's, the original length where the scaling names none.
    context: the longest that is asked for; `dynamic` takes its base from it, once, so that a key's
    rotation does not depend on what came after it. Raises BadInput for parameters that are missing.
    """
    if rotary_dim % 2:
        raise BadInput(f"rope: expected an even number of rotated dimensions, found {rotary_dim}")
    scaling, theta = rope.scaling, rope.theta
    if scaling is None:
        return RopeTable(_plain(theta, rotary_dim))
    original = scaling.original_context or max_context
    match scaling.kind:
        case "linear":
            return RopeTable(_plain(theta, rotary_dim) / scaling.factor)
        case "dynamic":
            return RopeTable(_dynamic(theta, rotary_dim, scaling.factor, original, context))
        case "llama3":
            return RopeTable(_llama3(_plain(theta, rotary_dim), scaling, original))
        case "yarn":
            return _yarn(theta, rotary_dim, scaling, original)
        case _:
            assert_never(scaling.kind)


def _plain(theta: float, dim: int) -> Frequencies:
    """theta^(-2i / dim)."""
    base = Decimal(theta)
    return np.array([float(_EXACT.power(base, _EXACT.divide(Decimal(-i), Decimal(dim))))
                     for i in range(0, dim, 2)])  # fmt: skip


def _dynamic(theta: float, dim: int, factor: float, trained: int, context: int) -> Frequencies:
    """The base grown for the longest context, where that exceeds the trained one."""
    length = max(context, trained)
    growth = Decimal(factor) * length / trained - (Decimal(factor) - 1)
    power = _EXACT.power(growth, _EXACT.divide(Decimal(dim), Decimal(dim - 2)))
    return _plain(float(_EXACT.multiply(Decimal(theta), power)), dim)


def _llama3(plain: Frequencies, scaling: RopeScaling, original: int) -> Frequencies:
    """Long waves slowed by the factor, short ones kept, those between blended."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    if low is None or high is None:
        raise BadInput("rope scaling llama3: needs low_freq_factor and high_freq_factor, found "
                       f"{low} and {high}")  # fmt: skip
    wavelength = 2 * math.pi / plain
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / scaling.factor + smooth * plain
    slowed = np.where(wavelength > original / low, plain / scaling.factor, blended)
    return np.where(wavelength < original / high, plain, slowed)


def _yarn(theta: float, dim: int, scaling: RopeScaling, original: int) -> RopeTable:
    """Fast waves kept, slow ones slowed by the factor, a ramp over dimensions between."""
    fast, slow = scaling.beta_fast or 32.0, scaling.beta_slow or 1.0

    def dimension_of(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension_of(fast)), 0)
    high: float = min(math.ceil(dimension_of(slow)), dim - 1)
    if low == high:
        high += 0.001  # as in the reference: a step instead of a ramp
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0.0, 1.0)
    plain = _plain(theta, dim)
    inv_freq = plain / scaling.factor * ramp + plain * (1 - ramp)
    factor = scaling.attention_factor
    if factor is None:
        factor = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
    return RopeTable(inv_freq, factor)
