"""DoesNotFit with numbers: what each device would need, what it has, and what would help."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from plancc.compiler.cost.memory import ledgers
from plancc.compiler.pins import UNPINNED, pins_said
from plancc.compiler.placement.chain_choice import Shape, Target, choose, least_total
from plancc.compiler.placement.columns import Columns, column_set
from plancc.compiler.placement.decide import (
    by_search,
    feasible,
    kept_bytes,
    room_bytes,
    unproven,
)
from plancc.compiler.placement.group_options import searches_groups
from plancc.compiler.placement.objectives import allowed_counts
from plancc.compiler.placement.paths import Chains, Limits, best_values
from plancc.compiler.placement.problem import Problem
from plancc.compiler.placement.question import build_problem
from plancc.compiler.placement.reach import largest
from plancc.compiler.placement.refusal_words import refusal_text
from plancc.compiler.placement.shapes import placed_stages
from plancc.compiler.placement.timeless import no_times
from plancc.ir.ask import Ask
from plancc.ir.errors import BadInput, DoesNotFit
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Ledger
from plancc.ir.topology import Topology

Trial = tuple[str, dict[str, Any]]  # a flag as it was typed, and the ask's fields without it
LEAST_CHUNK = 64  # rows; with smaller chunks prompts take so long that none is offered


def does_not_fit(model: ModelShape, topology: Topology, ask: Ask, problem: Problem) -> DoesNotFit:
    """The error for a problem that has no placement."""
    sums = _attempt(problem)
    report: dict[str, Any] = {
        "model": model.name,
        "context": problem.context,
        "slots": ask.slots,
        "max_devices": ask.max_devices,
        "short_bytes": max(0, -min(ledger.free_after for ledger in sums.values())),
        "devices": [_device_row(problem, name, ledger) for name, ledger in sums.items()],
        "fails": _sum_or_packing(problem),
        "groups": _groups(problem),
        "binding": _binding(model, topology, ask),
        "largest": _largest(problem),
    }
    return DoesNotFit(refusal_text(report), report)


def _attempt(problem: Problem) -> dict[str, Ledger]:
    """Ledgers of the shape whose worst device lacks least, and all of them least after that."""
    shape = _by_share(problem) if by_search(problem) else _least_lacking(problem)
    placement = unproven(problem, placed_stages(problem, shape))
    return ledgers(problem.model, problem.topology, problem.ask, placement)


def _least_lacking(problem: Problem) -> Shape:
    """The subset DP again, with missing bytes in place of time and no column refused for room."""
    columns = column_set(problem, no_times(problem))
    lacks = {key: Columns(table.legal, np.zeros_like(table.free), np.maximum(-table.free, 0))
             for key, table in columns.by_key.items()}  # fmt: skip
    short = replace(columns, by_key=lacks)
    worst = {count: entry for count, entry in best_values(Chains(short, "worst")).items()
             if count in allowed_counts(problem)}  # fmt: skip
    if not worst:
        return _by_share(problem)
    count = min(worst, key=lambda n: (worst[n][0], n))
    limits, starts = Limits(most=worst[count][0]), list(worst[count][1])
    chains = Chains(short, "sum", limits)
    total = min(least_total(chains, start, count) for start in starts)
    return choose(short, starts, Target(total, count, limits))


def _by_share(problem: Problem) -> Shape:
    """Layers in proportion to budgets, in seat order: numbers to show where a search is dear."""
    seats = range(min(problem.num_seats, problem.num_layers))
    room = np.maximum(problem.budgets[: len(seats)], 1).astype(float)
    ends = np.round(np.cumsum(room) / room.sum() * problem.num_layers).astype(int)
    for seat in seats:  # at least one layer each, in order
        ends[seat] = min(max(ends[seat], seat + 1), problem.num_layers - (len(seats) - 1 - seat))
    cuts = (0, *ends.tolist())
    asked = problem.ask.stage_layers
    if asked is not None:
        cuts = (0, *np.cumsum(asked).tolist())
    homes = tuple(0 for _ in problem.free_blocks)
    return Shape(tuple(seats)[: len(cuts) - 1], cuts, problem.head_modes[0], homes)


def _groups(problem: Problem) -> str:
    """Were TP groups tried, or why not? A key of GROUP_WORDS."""
    if problem.ask.tp in ("off", 1):
        return "off"
    mlps = [layer.mlp for layer in problem.model.layers]
    if not any(isinstance(mlp, DenseMlp) and mlp.num_tiles > 1 for mlp in mlps):
        return "uncut"
    if not searches_groups(problem):
        return _why_no_group(problem)
    return "many" if by_search(problem) else "tried"


def _why_no_group(problem: Problem) -> str:
    if problem.ask.objective == "workload":
        return "workload"
    if problem.shares_devices:
        return "repeated"
    most = min(problem.num_seats, problem.ask.max_devices or problem.num_seats)
    return "alone" if most == 1 else "apart"


def _device_row(problem: Problem, name: str, ledger: Ledger) -> dict[str, Any]:
    device = problem.topology.device(name)
    assert device is not None
    return {
        "device": name,
        "need": {part: size for part, size in ledger.parts().items() if size},
        "need_bytes": ledger.total,
        "have_bytes": device.budget_bytes,
        "short_bytes": max(0, -ledger.free_after),
    }


def _sum_or_packing(problem: Problem) -> dict[str, Any]:
    """Does even the sum of the devices lack room, without any hop buffer or second copy?"""
    scratch = min(int(problem.workspace[layout, True][0, problem.num_layers])
                  for layout in problem.layouts)  # fmt: skip
    need, have = kept_bytes(problem) + scratch, room_bytes(problem)
    kind = "sum" if need > have else "packing"
    short = max(0, need - have)  # 0 where the packing fails
    return {"kind": kind, "need_bytes": need, "have_bytes": have, "short_bytes": short}


def _binding(model: ModelShape, topology: Topology, ask: Ask) -> list[str]:
    """Flags without which the model would fit, one at a time; else all that pin in one string."""
    trials = list(_pin_trials(ask))
    found = [flag for flag, change in (*trials, *_other_trials(model, ask))
             if _would_fit(model, topology, ask, change)]  # fmt: skip
    if not found and len(trials) > 1 and _would_fit(model, topology, ask, UNPINNED):
        return [" ".join(flag for flag, _ in trials)]
    return found


def _pin_trials(ask: Ask) -> Iterator[Trial]:
    for block, device in sorted(ask.pin.items()):
        others = {name: home for name, home in ask.pin.items() if name != block}
        yield f"--pin {block}={device}", {"pin": others}
    for name in ("stage_layers", "devices", "max_devices", "tp", "head"):
        if getattr(ask, name) != UNPINNED[name]:
            alone = ask.model_copy(update=UNPINNED | {name: getattr(ask, name)})
            yield pins_said(alone), {name: UNPINNED[name]}


def _other_trials(model: ModelShape, ask: Ask) -> Iterator[Trial]:
    """Flags that take room and pin nothing."""
    if ask.kv_dtype not in (None, model.dtype):
        yield f"--kv-dtype {ask.kv_dtype}", {"kv_dtype": model.dtype}
    if ask.workers != "host":
        yield f"--workers {ask.workers}", {"workers": "host"}


def _would_fit(model: ModelShape, topology: Topology, ask: Ask, change: dict[str, Any]) -> bool:
    try:
        return feasible(build_problem(model, topology, ask.model_copy(update=change)))
    except BadInput:
        return False


def _largest(problem: Problem) -> dict[str, int | None]:
    """The largest context at these slots, the most slots at this context, and the largest chunk
    at both, that would fit.

    A workload's requests need a slot each, and room in it.
    """
    work = problem.ask.workload
    tokens, streams = (work.prompt + work.output, work.streams) if work else (1, 1)
    context = largest(tokens, problem.context - 1, lambda n: feasible(problem.at_context(n)))
    slots = largest(streams, problem.ask.slots - 1, lambda n: feasible(problem.with_slots(n)))
    rows = problem.ask.prefill_chunk - 1
    chunk = largest(LEAST_CHUNK, rows, lambda n: feasible(problem.with_chunk(n))) \
        if rows >= LEAST_CHUNK else None  # fmt: skip
    return {"context": context, "slots": slots, "prefill_chunk": chunk}
