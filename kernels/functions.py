"""exp, SiLU, sine and cosine from additions and multiplications alone.

A system's mathematics library may differ by a bit from another's; these cannot.
"""

from typing import Any

import numpy as np

from plancc.kernels.compile import kernel
from plancc.kernels.formats import bits_float

_F = np.float32
_LOG2_E, _LN2_HIGH, _LN2_LOW = _F(1.44269504088896341), _F(0.693359375), _F(-2.12194440e-4)
_LEAST, _MOST = _F(-87.0), _F(88.0)
_HALF, _ONE, _ZERO = _F(0.5), _F(1.0), _F(0.0)
# (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2: minimax coefficients of Cephes' expf.
_E0, _E1, _E2 = _F(1.9875691500e-4), _F(1.3981999507e-3), _F(8.3334519073e-3)
_E3, _E4, _E5 = _F(4.1665795894e-2), _F(1.6666665459e-1), _F(5.0000001201e-1)


@kernel
def exp_f32(x: Any) -> Any:
    """e to the x within 2 units in the last place; 0 below -87, e^88 above 88,
    NaN for infinity and NaN; exp(0) is 1."""
    y = min(max(x, _LEAST), _MOST)
    whole = np.floor(y * _LOG2_E + _HALF)
    r = (y - whole * _LN2_HIGH) - whole * _LN2_LOW
    p = ((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5
    power = bits_float(np.uint32((np.int32(whole) + np.int32(127)) << np.int32(23)))
    value = (p * (r * r) + r + _ONE) * power + (x - x)  # a NaN stays one
    return _ZERO if x < _LEAST else value


@kernel
def silu(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return x / (_ONE + exp_f32(-x))


_TWO_OVER_PI = 0.6366197723675814
# pi / 2 in three parts of 33 bits: their products with a whole number below 2^20 are exact.
_PI_1, _PI_2, _PI_3 = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21


@kernel
def _sine(r: Any) -> Any:
    """Taylor's series to r^17, |r| <= pi / 4."""
    z = r * r
    p = 1.0 - z / 272.0
    p = 1.0 - z / 210.0 * p
    p = 1.0 - z / 156.0 * p
    p = 1.0 - z / 110.0 * p
    p = 1.0 - z / 72.0 * p
    p = 1.0 - z / 42.0 * p
    p = 1.0 - z / 20.0 * p
    return r * (1.0 - z / 6.0 * p)


@kernel
def _cosine(r: Any) -> Any:
    """Taylor's series to r^16, |r| <= pi / 4."""
    z = r * r
    p = 1.0 - z / 240.0
    p = 1.0 - z / 182.0 * p
    p = 1.0 - z / 132.0 * p
    p = 1.0 - z / 90.0 * p
    p = 1.0 - z / 56.0 * p
    p = 1.0 - z / 30.0 * p
    p = 1.0 - z / 12.0 * p
    return 1.0 - z / 2.0 * p


@kernel
def cos_sin(angle: Any) -> Any:
    """(cosine, sine) in float64 of an angle of at most 2^20 right angles, error below 1e-15."""
    quarter = np.floor(angle * _TWO_OVER_PI + 0.5)
    r = ((angle - quarter * _PI_1) - quarter * _PI_2) - quarter * _PI_3
    c, s = _cosine(r), _sine(r)
    turn = np.int64(quarter) & 3
    if turn == 0:
        return c, s
    if turn == 1:
        return -s, c
    if turn == 2:
        return -c, -s
    return s, -c
