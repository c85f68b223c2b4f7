"""The shapes that lost, each with its value or what it lacks: the answer to "why not?"."""

from typing import Literal

from plancc.compiler.placement.objectives import Option, allowed_counts
from plancc.compiler.placement.problem import Problem
from plancc.ir.plan import Alternative


def alternatives(
    problem: Problem, found: dict[int, Option], chosen: Option, most: int
) -> tuple[Alternative, ...]:
    """One device, then pipelines by number of devices, then TP. `most` is T* with its margin."""
    rows = [_one_device(problem, found, chosen, most)]
    for count in allowed_counts(problem):
        if count > 1:
            rows.append(_pipeline(problem, found, chosen, most, count))
    return (*rows, _tp(problem))


def _one_device(
    problem: Problem, found: dict[int, Option], chosen: Option, most: int
) -> Alternative:
    option = found.get(1)
    if option is not None:
        seat = min(option.starts, key=lambda start: problem.seats[start[1]])[1]
        verdict = _verdict(option, chosen, most)
        return Alternative(shape="one device", verdict=verdict, value=option.value,
                           device=problem.seats[seat])  # fmt: skip
    if 1 not in allowed_counts(problem) or problem.ask.stage_layers is not None:
        return Alternative(shape="one device", verdict="not allowed", note="the cuts are asked for")
    mode = problem.head_modes[0]
    columns = chosen.columns.by_key[mode, (1 << len(problem.free_blocks)) - 1]
    free = columns.free[:, 0, problem.num_layers]
    seat = max(range(problem.num_seats), key=lambda s: (free[s], -s))
    if free[seat] >= 0:
        return Alternative(shape="one device", verdict="not allowed", note="blocks are pinned")
    return Alternative(shape="one device", verdict="does not fit", short_bytes=int(-free[seat]),
                       device=problem.seats[seat])  # fmt: skip


def _pipeline(
    problem: Problem, found: dict[int, Option], chosen: Option, most: int, count: int
) -> Alternative:
    shape = f"pipeline of {count} stages"
    option = found.get(count)
    if option is not None:
        return Alternative(shape=shape, verdict=_verdict(option, chosen, most), value=option.value)
    if problem.ask.stage_layers is not None:
        return Alternative(shape=shape, verdict="not allowed", note="the cuts are asked for")
    if problem.ask.objective == "throughput":
        return Alternative(shape=shape, verdict="slower", note="or does not fit")
    return Alternative(shape=shape, verdict="does not fit")


def _verdict(
    option: Option, chosen: Option, most: int
) -> Literal["chosen", "within margin", "slower"]:
    if option is chosen:
        return "chosen"
    return "within margin" if option.value <= most else "slower"


def _tp(problem: Problem) -> Alternative:
    off = problem.ask.tp == "off" or problem.ask.tp == 1
    note = "--tp off" if off else "this version places pipelines only"
    return Alternative(shape="MLP tensor parallelism", verdict="not allowed", note=note)
