"""A segment as lists of stages, and the one function that a team runs them with.

Every thread runs every stage on its share, and meets the others after each.
"""

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
from plancc.kernels.embed import enter_groups, enter_rows, leave_groups, leave_rows
from plancc.kernels.linear import HEAD, OUTPUT, QKV, block_sums_function, linear_groups, linear_rows
from plancc.kernels.mlp import down_groups, down_rows, gate_up_groups, gate_up_rows
from plancc.kernels.norm import FINAL, INPUT, LAST_ROW, MLP, norm_groups, norm_rows
from plancc.kernels.primitives import PRIMITIVES
from plancc.kernels.tables import LAYER, as_step
from plancc.kernels.team import meet

SHARED: Mapping[str, Function] = MappingProxyType(
    PRIMITIVES | {"block_sums": block_sums_function, "attend_block": attend_block_function}
)
"""What stages call by address, each by the name of its field in STEP."""

Stages = tuple[tuple[Function, int], ...]  # and its variant

ROWS_ENTER: Stages = ((enter_rows, 0),)
ROWS_LAYER: Stages = (
    (norm_rows, INPUT),
    (linear_rows, QKV),
    (append_rows, 0),
    (attend_rows, 0),
    (linear_rows, OUTPUT),
    (norm_rows, MLP),
    (gate_up_rows, 0),
    (down_rows, 0),
)
ROWS_LEAVE: Stages = ((leave_rows, 0),)
ROWS_HEAD: Stages = ((norm_rows, FINAL), (linear_rows, HEAD))

GROUPS_ENTER: Stages = ((enter_groups, 0),)
GROUPS_LAYER: Stages = (
    (norm_groups, INPUT),
    (linear_groups, QKV),
    (append_groups, 0),
    (attend_groups, 0),
    (linear_groups, OUTPUT),
    (norm_groups, MLP),
    (gate_up_groups, 0),
    (down_groups, 0),
)
GROUPS_LEAVE: Stages = ((leave_groups, 0),)
GROUPS_HEAD: Stages = ((norm_rows, LAST_ROW), (linear_rows, HEAD))

_LAYER_BYTES = LAYER.itemsize
_call_stage = by_address(types.void, *ints(5))


def stage_array(stages: Stages) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64 [stages, 2], as STEP points to; compiles what was not compiled yet."""
    return np.array([(function.address, variant) for function, variant in stages], np.int64)


@kernel
def _run(
    stages: Any, count: Any, thread: Any, num_threads: Any, barrier: Any, step: Any, layer: Any
) -> None:
    for i in range(count):
        _call_stage(load_i64(stages, 2 * i), thread, num_threads, step, layer,
                    load_i64(stages, 2 * i + 1))  # fmt: skip
        meet(barrier, num_threads)


def _run_segment(thread: Any, num_threads: Any, barrier: Any, step_at: Any, layers_at: Any) -> None:
    step = as_step(step_at)
    # All is read before the last meeting: whoever leaves it first may write the next step's record.
    each_layer, num_each_layer = step.each_layer, step.num_each_layer
    after, num_after = step.after, step.num_after
    first, end = step.first_layer, step.end_layer
    _run(step.before, step.num_before, thread, num_threads, barrier, step_at, layers_at)
    for index in range(first, end):
        layer = layers_at + index * _LAYER_BYTES
        _run(each_layer, num_each_layer, thread, num_threads, barrier, step_at, layer)
    _run(after, num_after, thread, num_threads, barrier, step_at, layers_at)


@cache
def segment_runner() -> Compiled:
    """(thread, num_threads, barrier, STEP address, address of the LAYER records): runs a segment.

    To be called on every thread of a team.
    """
    return compile_entry(_run_segment, "void(int64, int64, int64, int64, int64)")
