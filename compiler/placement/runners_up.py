"""The shapes that lost, each with its value or what it lacks: the answer to "why not?"."""

from dataclasses import dataclass
from typing import Literal

from plancc.compiler.cost.full_tp_row import full_tp_row
from plancc.compiler.placement.columns import column_set
from plancc.compiler.placement.group_options import GroupOptions
from plancc.compiler.placement.objectives import Option, allowed_counts
from plancc.compiler.placement.one_stage import DOES_NOT_FIT, NOT_SEARCHED, OneStage
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.timeless import no_times
from plancc.compiler.placement.units import allows_groups, allows_pipelines
from plancc.ir.layers import num_tiles
from plancc.ir.plan import Alternative

Verdict = Literal["chosen", "within margin", "slower"]


@dataclass(frozen=True)
class Field:
    """All that was found: pipelines by stages, shapes with groups by devices, and what was taken.

    `most` is T* with its margin. `chosen` is the value's key: devices, and whether with groups.
    """

    problem: Problem
    pipelines: dict[int, Option]
    groups: GroupOptions | OneStage | None
    most: int
    chosen: tuple[int, bool]


def alternatives(field: Field) -> tuple[Alternative, ...]:
    """One device, pipelines by number of devices, MLP TP alone and with a pipeline, full TP."""
    rows = []
    if allows_pipelines(field.problem):
        rows.append(_one_device(field))
        rows += [_pipeline(field, count) for count in allowed_counts(field.problem) if count > 1]
    rows += _with_groups(field)
    if field.problem.ask.objective != "context":
        problem = field.problem
        full = full_tp_row(problem.model, problem.topology, problem.ask, problem.context)
        rows += [] if full is None else [full]
    return tuple(_without_ns(row) if field.problem.ask.objective == "context" else row
                 for row in rows)  # fmt: skip


def _without_ns(row: Alternative) -> Alternative:
    """For the largest context no shape was timed but at the one that was found."""
    if row.value is None:
        return row
    return row.model_copy(update={"value": None, "note": f"{row.value / 1e6:.2f} ms a step there"})


def _one_device(field: Field) -> Alternative:
    problem, option = field.problem, field.pipelines.get(1)
    if option is not None:
        seat = min(option.starts, key=lambda start: problem.seats[start[1]])[1]
        return Alternative(shape="one device", verdict=_verdict(field, option.value, (1, False)),
                           value=option.value, device=problem.seats[seat])  # fmt: skip
    if 1 not in allowed_counts(problem) or problem.ask.stage_layers is not None:
        return Alternative(shape="one device", verdict="not allowed", note="the cuts are asked for")
    columns = column_set(problem, no_times(problem))
    table = columns.by_key[problem.head_modes[0], (1 << len(problem.free_blocks)) - 1]
    free = table.free[:, 0, problem.num_layers]
    seat = max(range(problem.num_seats), key=lambda s: (free[s], -s))
    if free[seat] >= 0:
        return Alternative(shape="one device", verdict="not allowed", note="blocks are pinned")
    return Alternative(shape="one device", verdict="does not fit", short_bytes=int(-free[seat]),
                       device=problem.seats[seat])  # fmt: skip


def _pipeline(field: Field, count: int) -> Alternative:
    shape = f"pipeline of {count} stages"
    option = field.pipelines.get(count)
    if option is not None:
        verdict = _verdict(field, option.value, (count, False))
        return Alternative(shape=shape, verdict=verdict, value=option.value)
    if field.problem.ask.stage_layers is not None:
        return Alternative(shape=shape, verdict="not allowed", note="the cuts are asked for")
    if field.problem.ask.objective in ("throughput", "workload"):
        return Alternative(shape=shape, verdict="slower", note="or does not fit")
    return Alternative(shape=shape, verdict="does not fit")


def _verdict(field: Field, value: int, key: tuple[int, bool]) -> Verdict:
    if key == field.chosen:
        return "chosen"
    return "within margin" if value <= field.most else "slower"


def _with_groups(field: Field) -> list[Alternative]:
    """MLP TP over every layer, and the best of groups and single devices in a pipeline."""
    if field.groups is None:
        return [Alternative(shape="MLP tensor parallelism", verdict="not allowed",
                            note=_why_no_groups(field.problem))]  # fmt: skip
    return [_group_row(field, "MLP tensor parallelism", several=False),
            _group_row(field, "pipeline with MLP tensor parallelism", several=True)]  # fmt: skip


def _why_no_groups(problem: Problem) -> str:
    if problem.ask.tp in ("off", 1):
        return f"--tp {problem.ask.tp}"
    if not allows_groups(problem):
        return "one device" if problem.num_seats == 1 else "a device is asked for repeatedly"
    if problem.ask.workload:
        return f"{NOT_SEARCHED} for --workload"
    if max(map(num_tiles, problem.model.layers), default=0) < 2:
        return "no layer has an MLP that can be cut in tiles"
    return "no two devices share a host or a measured exchange"


def _group_row(field: Field, shape: str, *, several: bool) -> Alternative:
    assert field.groups is not None
    found = field.groups.row(several=several)
    if isinstance(found, str):
        if found == DOES_NOT_FIT:
            return Alternative(shape=shape, verdict="does not fit")
        verdict: Literal["not allowed", "slower"]
        verdict = "not allowed" if found.startswith(NOT_SEARCHED) else "slower"
        return Alternative(shape=shape, verdict=verdict, note=found)
    value, devices = found
    is_chosen = field.chosen == (devices, True) and value == field.groups.values[devices]
    kind: Verdict = "chosen" if is_chosen else _verdict(field, value, (0, True))
    return Alternative(shape=f"{shape} over {devices}", verdict=kind, value=value)
