"""A segment as lists of stages, and the one function that a team runs them with."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numba import types

from plancc.kernels.address import by_address, ints, load_i64
from plancc.kernels.attention_groups import append_groups, attend_block_function, attend_groups
from plancc.kernels.attention_rows import append_rows, attend_rows
from plancc.kernels.compile import Compiled, Function, compile_entry, kernel
from plancc.kernels.embed import (
    NORMED,
    RESIDUAL,
    enter_groups,
    enter_rows,
    leave_groups,
    leave_rows,
)
from plancc.kernels.linear import HEAD, OUTPUT, QKV, block_sums_function, linear_groups, linear_rows
from plancc.kernels.mlp import down_groups, down_rows, gate_up_groups, gate_up_rows
from plancc.kernels.norm import FINAL, INPUT, LAST_ROW, MLP, norm_groups, norm_rows
from plancc.kernels.primitives import PRIMITIVES
from plancc.kernels.roots import sum_groups, sum_rows
from plancc.kernels.tables import LAYER, as_step
from plancc.kernels.team import job_of, join, leave, leave_stage, part_done, parts_of, take_part

SHARED: Mapping[str, Function] = MappingProxyType(
    PRIMITIVES | {"block_sums": block_sums_function, "attend_block": attend_block_function}
)
"""What stages call by address, each by the name of its field in STEP."""

Stages = tuple[tuple[Function, int, int], ...]
"""Each with its variant, and in how many parts it can be cut at most: 0 for any number."""

_FEW = 4  # short, or made of a few rows: more parts would only be counted

ROWS_ENTER: Stages = ((enter_rows, RESIDUAL, _FEW),)
ROWS_ENTER_NORMED: Stages = ((enter_rows, NORMED, _FEW),)
ROWS_SUM: Stages = ((sum_rows, 0, 0),)
ROWS_LAYER: Stages = (
    (norm_rows, INPUT, _FEW),
    (linear_rows, QKV, 0),
    (append_rows, 0, _FEW),
    (attend_rows, 0, 0),
    (linear_rows, OUTPUT, 0),
    (norm_rows, MLP, _FEW),
    (gate_up_rows, 0, 0),
    (down_rows, 0, 0),
)
ROWS_MIXER, ROWS_MLP = ROWS_LAYER[:-2], ROWS_LAYER[-2:]
ROWS_LEAVE: Stages = ((leave_rows, RESIDUAL, _FEW),)
ROWS_LEAVE_NORMED: Stages = ((leave_rows, NORMED, _FEW),)
ROWS_HEAD: Stages = ((norm_rows, FINAL, _FEW), (linear_rows, HEAD, 0))

GROUPS_ENTER: Stages = ((enter_groups, RESIDUAL, _FEW),)
GROUPS_ENTER_NORMED: Stages = ((enter_groups, NORMED, _FEW),)
GROUPS_SUM: Stages = ((sum_groups, 0, 0),)
GROUPS_LAYER: Stages = (
    (norm_groups, INPUT, _FEW),
    (linear_groups, QKV, 0),
    (append_groups, 0, 0),
    (attend_groups, 0, 0),
    (linear_groups, OUTPUT, 0),
    (norm_groups, MLP, _FEW),
    (gate_up_groups, 0, 0),
    (down_groups, 0, 0),
)
GROUPS_MIXER, GROUPS_MLP = GROUPS_LAYER[:-2], GROUPS_LAYER[-2:]
GROUPS_LEAVE: Stages = ((leave_groups, RESIDUAL, _FEW),)
GROUPS_LEAVE_NORMED: Stages = ((leave_groups, NORMED, _FEW),)
GROUPS_HEAD: Stages = ((norm_rows, LAST_ROW, 1), (linear_rows, HEAD, 0))

_LAYER_BYTES = LAYER.itemsize
_call_stage = by_address(types.void, *ints(5))


def stage_array(stages: Stages) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64 [stages, 3], as STEP points to; compiles what was not compiled yet."""
    rows = [(function.address, variant, most) for function, variant, most in stages]
    return np.array(rows, np.int64).reshape(len(stages), 3)


def max_stages(num_layers: int) -> int:
    """The most stages that a segment of so many layers has."""
    per_layer = max(len(ROWS_LAYER), len(GROUPS_LAYER))
    before = len(ROWS_ENTER) + len(ROWS_SUM)
    after = max(len(ROWS_HEAD), len(GROUPS_HEAD), len(ROWS_LEAVE) + len(ROWS_LEAVE_NORMED))
    return before + after + num_layers * per_layer


@kernel
def _run(
    stages: Any, count: Any, number: Any, num_threads: Any, state: Any, step: Any, layer: Any
) -> Any:
    """Do a share of each of `count` stages, the first of which is stage `number` of the run."""
    for i in range(count):
        address, variant = load_i64(stages, 3 * i), load_i64(stages, 3 * i + 1)
        parts = parts_of(load_i64(stages, 3 * i + 2), num_threads)
        if num_threads == 1:
            _call_stage(address, 0, 1, step, layer, variant)
            continue
        part = take_part(state, num_threads, number + i, parts)
        while part < parts:
            _call_stage(address, part, parts, step, layer, variant)
            part_done(state, num_threads, number + i)
            part = take_part(state, num_threads, number + i, parts)
        leave_stage(state, num_threads, number + i, parts)
    return number + count


def _run_segment(thread: Any, num_threads: Any, state: Any) -> None:
    if not join(state, thread):
        return
    step_at, layers_at = job_of(state)
    step, number = as_step(step_at), 0
    number = _run(step.before, step.num_before, number, num_threads, state, step_at, layers_at)
    for index in range(step.first_layer, step.end_layer):
        layer = layers_at + index * _LAYER_BYTES
        number = _run(step.each_layer, step.num_each_layer, number, num_threads, state, step_at,
                      layer)  # fmt: skip
    _run(step.after, step.num_after, number, num_threads, state, step_at, layers_at)
    leave(state, thread, num_threads)


@cache
def segment_runner() -> Compiled:
    """(thread, num_threads, state): a team's function; its job is a STEP and its LAYER records."""
    return compile_entry(_run_segment, "void(int64, int64, int64)")
