"""rmsnorm/1: x / sqrt(mean(x^2) + eps) times a gain, rounded once to the model's format.

A row's squares are summed as `dot` does (decode) or in one chain (prompt); never across rows.
Any width of 1 or more.
"""

from typing import Any

import numpy as np

from plancc.kernels.address import load_f32, scratch_f32, store_f32
from plancc.kernels.compile import kernel
from plancc.kernels.embed import take_last_row
from plancc.kernels.formats import FLOAT32, load_as
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.primitives import dot, round_to, widen
from plancc.kernels.tables import as_layer, as_step, stage
from plancc.kernels.team import share_of

INPUT, MLP, FINAL, LAST_ROW = 0, 1, 2, 3
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@kernel
def _gain_of(step: Any, layer: Any, variant: Any) -> Any:
    if variant >= FINAL:
        return step.final_norm
    return layer.input_norm if variant == INPUT else layer.mlp_norm


@kernel
def _norm_row(step: Any, x: Any, gain: Any, out: Any) -> None:
    width = step.hidden_size
    squares = dot(step.dot, x, x, width, FLOAT32)
    scale = _ONE / np.sqrt(squares / np.float32(width) + step.norm_eps)
    widen(step.widen, gain, step.code, width, out)
    for i in range(width):
        store_f32(out, i, (load_f32(x, i) * scale) * load_f32(out, i))
    round_to(step.round_to, out, width, step.code)


@stage
def norm_rows(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """Residual into normed, float32 [rows, hidden]; the variant names the gain.

    LAST_ROW: the last row of the residual's groups, as row 0 of normed, with the final gain.
    """
    step, layer = as_step(step_at), as_layer(layer_at)
    first, end = share_of(1 if variant == LAST_ROW else step.num_rows, part, parts)
    for row in range(first, end):
        at = 4 * row * step.hidden_size
        x = step.residual + at
        if variant == LAST_ROW:
            x = step.normed + 4 * step.hidden_size
            take_last_row(step, x)
        _norm_row(step, x, _gain_of(step, layer, variant), step.normed + at)


@stage
def norm_groups(part: Any, parts: Any, step_at: Any, layer_at: Any, variant: Any) -> None:
    """Residual into normed, [groups, hidden, GROUP_ROWS]."""
    step, layer = as_step(step_at), as_layer(layer_at)
    gain = _gain_of(step, layer, variant)
    first, end = share_of(step.num_groups, part, parts)
    for group in range(first, end):
        at = 64 * group * step.hidden_size
        _norm_group(step, step.residual + at, gain, step.normed + at)


@kernel
def _norm_group(step: Any, x: Any, gain: Any, out: Any) -> None:
    width = step.hidden_size
    scales = scratch_f32(16)  # GROUP_ROWS
    for lane in range(GROUP_ROWS):
        store_f32(scales, lane, _ZERO)
    for i in range(width):
        for lane in range(GROUP_ROWS):
            value = load_f32(x, i * GROUP_ROWS + lane)
            store_f32(scales, lane, load_f32(scales, lane) + value * value)
    for lane in range(GROUP_ROWS):
        mean = load_f32(scales, lane) / np.float32(width)
        store_f32(scales, lane, _ONE / np.sqrt(mean + step.norm_eps))
    for i in range(width):
        weight = load_as(gain, i, step.code)
        for lane in range(GROUP_ROWS):
            at = i * GROUP_ROWS + lane
            store_f32(out, at, (load_f32(x, at) * load_f32(scales, lane)) * weight)
    round_to(step.round_to, out, width * GROUP_ROWS, step.code)
