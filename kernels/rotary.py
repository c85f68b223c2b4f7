"""rope: cosines and sines of a step's positions, and the rotation of a head by them.

Halves are rotated, as Hugging Face does: (x[i], x[i + rotary_dim / 2]) for i < rotary_dim / 2.
Angles are position x inv_freq in float64; cosine and sine, times the attention factor, are rounded
once to float32. They are made anew for every step, so no table grows with the context.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, load_f64, load_i64, store_f32
from plancc.kernels.compile import kernel
from plancc.kernels.functions import cos_sin
from plancc.kernels.panels import GROUP_ROWS


@kernel
def fill_rows(step: Any, first: Any, end: Any) -> None:
    """Rows [first, end) of the table [num_ropes, rows, (cosines, sines)], for decode."""
    half = step.rope_width // 2
    for rope in range(step.num_ropes):
        factor = load_f64(step.inv_freq, step.num_ropes * half + rope)
        for row in range(first, end):
            position = np.float64(load_i64(step.positions, row))
            at = (rope * step.num_rows + row) * step.rope_width
            for i in range(half):
                c, s = cos_sin(position * load_f64(step.inv_freq, rope * half + i))
                store_f32(step.rope_table, at + i, np.float32(c * factor))
                store_f32(step.rope_table, at + half + i, np.float32(s * factor))


@kernel
def fill_groups(step: Any, first: Any, end: Any) -> None:
    """Groups [first, end) of the table [num_ropes, groups, (cosines, sines), GROUP_ROWS]."""
    half, num_groups = step.rope_width // 2, step.num_groups
    for rope in range(step.num_ropes):
        factor = load_f64(step.inv_freq, step.num_ropes * half + rope)
        for group in range(first, end):
            start = np.float64(load_i64(step.positions, 0) + group * GROUP_ROWS)
            at = (rope * num_groups + group) * step.rope_width
            for i in range(half):
                rate = load_f64(step.inv_freq, rope * half + i)
                for lane in range(GROUP_ROWS):
                    c, s = cos_sin((start + lane) * rate)
                    store_f32(step.rope_table, (at + i) * GROUP_ROWS + lane, np.float32(c * factor))
                    at_sine = (at + half + i) * GROUP_ROWS + lane
                    store_f32(step.rope_table, at_sine, np.float32(s * factor))


@kernel
def table_of_row(step: Any, rope: Any, row: Any) -> Any:
    """Address of a decode row's cosines; its sines follow."""
    return step.rope_table + 4 * (rope * step.num_rows + row) * step.rope_width


@kernel
def rotate_row(
    x: Any, table: Any, rope_width: Any, rotary_dim: Any, head_dim: Any, out: Any
) -> None:
    """Rotate one head of one row; numbers from rotary_dim on are copied. out may be x."""
    half, sines = rotary_dim // 2, table + 2 * rope_width
    for i in range(half):
        a, b = load_f32(x, i), load_f32(x, half + i)
        c, s = load_f32(table, i), load_f32(sines, i)
        store_f32(out, i, a * c - b * s)
        store_f32(out, half + i, b * c + a * s)
    for i in range(rotary_dim, head_dim):
        store_f32(out, i, load_f32(x, i))


@kernel
def rotate_group(step: Any, rope: Any, group: Any, x: Any, rotary_dim: Any) -> None:
    """Rotate one head, [head_dim, GROUP_ROWS], in place: the same sums as a row's."""
    half, num_groups = rotary_dim // 2, step.num_groups
    cosines = step.rope_table + 64 * (rope * num_groups + group) * step.rope_width
    sines = cosines + 32 * step.rope_width
    for at in range(half * GROUP_ROWS):
        a, b = load_f32(x, at), load_f32(x, half * GROUP_ROWS + at)
        c, s = load_f32(cosines, at), load_f32(sines, at)
        store_f32(x, at, a * c - b * s)
        store_f32(x, half * GROUP_ROWS + at, b * c + a * s)
