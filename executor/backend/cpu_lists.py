"""Which stages a segment is made of, for each phase: lists in memory that a STEP may name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plancc.ir.instruction import Run
from plancc.kernels import stages
from plancc.kernels.stages import Stages, stage_array

Lists = Mapping[str, tuple[int, int]]
"""(address, how many stages) by name."""

_ROWS: Mapping[str, Stages] = {
    "enter": stages.ROWS_ENTER,
    "enter and sum": stages.ROWS_ENTER + stages.ROWS_SUM,
    "enter normed": stages.ROWS_ENTER_NORMED,
    "whole": stages.ROWS_LAYER,
    "mixer": stages.ROWS_MIXER,
    "mlp": stages.ROWS_MLP,
    "leave": stages.ROWS_LEAVE,
    "leave normed": stages.ROWS_LEAVE + stages.ROWS_LEAVE_NORMED,
    "head": stages.ROWS_HEAD,
}
_GROUPS: Mapping[str, Stages] = {
    "enter": stages.GROUPS_ENTER,
    "enter and sum": stages.GROUPS_ENTER + stages.GROUPS_SUM,
    "enter normed": stages.GROUPS_ENTER_NORMED,
    "whole": stages.GROUPS_LAYER,
    "mixer": stages.GROUPS_MIXER,
    "mlp": stages.GROUPS_MLP,
    "leave": stages.GROUPS_LEAVE,
    "leave normed": stages.GROUPS_LEAVE + stages.GROUPS_LEAVE_NORMED,
    "head": stages.GROUPS_HEAD,
}


def stage_lists(phase: str, keep: Callable[[Any], int], *, in_group: bool) -> Lists:
    """The lists of a phase, `keep` saying where each lies; compiles what was not compiled yet."""
    lists = _ROWS if phase == "decode" else _GROUPS
    alone = ("enter", "whole", "leave", "head")
    found = {
        name: (keep(np.ascontiguousarray(stage_array(lists[name]))), len(lists[name]))
        for name in (lists if in_group else alone)
    }
    return found | {"nothing": (0, 0)}


def lists_of(run: Run, *, adds: bool, num_logits: int) -> tuple[str, str, str]:
    """Names of the lists before, in each layer of, and after a segment.

    adds: the sum of an exchange comes first.
    """
    if run.part == "mlp":
        return "enter normed", "mlp", "nothing"
    before = "enter and sum" if adds else "enter"
    if run.part == "mixer":
        return before, "mixer", "leave normed"
    if run.head:
        return before, "whole", "head" if num_logits else "nothing"
    return before, "whole", "leave"
