"""Does this machine, and do these weights, still match the plan? Asked before any memory is taken.

Every mismatch is told at once, each with both values (design.md section 7). Nothing is opened on
a device and nothing is started.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plancc.executor.backends import BACKENDS, HOSTS, host_of, refuse_unserved
from plancc.executor.machine import Look, available_bytes, has_address, num_cores
from plancc.executor.seats import refuse_what_cannot_run, seats_of
from plancc.executor.weights import (
    Weights,
    coverage_problem,
    find_folder,
    fingerprint_problem,
    read_weights,
)
from plancc.ir.errors import BadInput, Stale
from plancc.ir.legality import plan_problems
from plancc.ir.plan import Plan, read_plan
from plancc.ir.sizes import step_rows
from plancc.ir.units import format_bytes

_NO_INDEX = (
    "weights: the plan's manifest had no weight index, so no weights can be compared; make it "
    "with `plancc manifest` and compile again"
)


@dataclass(frozen=True)
class Machine:
    """What is asked of this machine; a test hands in another one."""

    available_bytes: Callable[[], int] = available_bytes
    num_cores: Callable[[], int] = num_cores
    has_address: Callable[[str], bool] = has_address
    backends: Mapping[str, str] = field(default_factory=lambda: BACKENDS)
    hosts: Mapping[str, str] = field(default_factory=lambda: HOSTS)


@dataclass(frozen=True)
class Passed:
    """A plan that may run here; `notes` say which of this machine's devices are the plan's."""

    plan: Plan
    weights: Weights
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()


def preflight(
    plan_path: Path, asked_weights: Path | None, environment: Mapping[str, str],
    machine: Machine | None = None, on_hashed: Callable[[int], None] = lambda num_bytes: None,
) -> Passed:  # fmt: skip
    """`on_hashed` hears of weight bytes as they are hashed: all of them, for a full fingerprint.

    Raises BadInput for what cannot be read, Stale for a plan that this machine cannot honour.
    """
    machine = machine or Machine()
    plan = read_plan(plan_path)
    problems = _digest_problems(plan)
    if contradictions := plan_problems(plan):  # nothing else of such a plan means anything
        raise Stale((*problems, *contradictions))
    refuse_what_cannot_run(plan)
    _refuse_what_kernels_lack(plan)
    looks = _looks(plan, machine, environment)
    problems += [*_host_problems(plan, machine), *_kind_problems(plan, machine)]
    problems += [
        *_memory_problems(plan, machine),
        *(row for look in looks for row in look.problems),
    ]
    unread: list[str] = []
    weights = None
    try:
        if plan.weights is None:
            raise BadInput(_NO_INDEX)
        folder = find_folder(plan, plan_path, asked_weights, environment)
        weights = read_weights(plan, folder, on_hashed)
        problems += _weight_problems(plan, weights)
    except BadInput as error:
        if not problems:
            raise
        unread = str(error).splitlines()
    if problems:
        raise Stale((*problems, *unread))
    assert weights is not None
    notes = tuple(note for look in looks for note in look.notes)
    return Passed(plan, weights, (*_warnings(plan, machine), *weights.warnings), notes)


def _digest_problems(plan: Plan) -> list[str]:
    found = plan.computed_digest()
    if found == plan.digest:
        return []
    return [
        f"digest: the plan says {plan.digest[:16] or '(nothing)'}, its content gives "
        f"{found[:16]}: it was changed by hand; compile it again"
    ]


def _refuse_what_kernels_lack(plan: Plan) -> None:
    """Raises BadInput naming once what no kernel serves, of all ranks."""
    lines: list[str] = []
    for seat in seats_of(plan):
        try:
            refuse_unserved(seat.kind, plan.model, plan.runtime, seat.layers, seat.tiles,
                            seat.group)  # fmt: skip
        except BadInput as error:
            lines += str(error).splitlines()
    if lines:
        raise BadInput("\n".join(dict.fromkeys(lines)))


def _host_problems(plan: Plan, machine: Machine) -> list[str]:
    """The plan's one host must be this one: its address can be listened at."""
    if len(plan.runtime.hosts) > 1:
        names = ", ".join(f"{row.name} ({row.address})" for row in plan.runtime.hosts)
        return [f"hosts: this planrun starts the workers of one host, the plan has {names}"]
    return [
        f"host {row.name}: the plan gives it address {row.address}, this machine has no such one"
        for row in plan.runtime.hosts
        if not machine.has_address(row.address)
    ]


def _kind_problems(plan: Plan, machine: Machine) -> list[str]:
    return [
        f"device {device.name}: the plan wants kind {device.kind}, found a backend for "
        f"{', '.join(sorted(machine.backends))} only"
        for device in plan.devices
        if device.kind not in machine.backends
    ]


def _looks(plan: Plan, machine: Machine, environment: Mapping[str, str]) -> list[Look]:
    """What each kind says of the plan's devices of it, in the plan's order of kinds."""
    kinds = dict.fromkeys(device.kind for device in plan.devices)
    return [
        host_of(kind, machine.hosts).look(
            [device for device in plan.devices if device.kind == kind], environment
        )
        for kind in kinds
        if kind in machine.backends
    ]


def _memory_problems(plan: Plan, machine: Machine) -> list[str]:
    """Host memory is one, however many devices share it and links go through it."""
    filled = {
        device.name: host_of(device.kind, machine.hosts).host_bytes(device)
        for device in plan.devices
        if device.kind in machine.backends
    } | {"links through it": _staged_bytes(plan)}
    needed, found = sum(filled.values()), machine.available_bytes()
    if found >= needed:
        return []
    names, hosts = (
        ", ".join(name for name, size in filled.items() if size),
        ", ".join(host.name for host in plan.runtime.hosts),
    )
    return [
        f"host {hosts}: the plan fills {format_bytes(needed)} on {names}, free are "
        f"{format_bytes(found)}: {format_bytes(needed - found)} short"
    ]


def _staged_bytes(plan: Plan) -> int:
    """Slots in the host's memory that rows pass between devices that cannot reach each other."""
    rows = step_rows(plan.runtime.slots, plan.runtime.prefill_chunk)
    return sum(link.slots * rows * link.bytes_per_row
               for link in plan.links if link.transport == "staged")  # fmt: skip


def _weight_problems(plan: Plan, weights: Weights) -> list[str]:
    if problem := fingerprint_problem(plan, weights):
        return [problem]
    problem = coverage_problem(plan, weights.index)
    return [problem] if problem else []


def _warnings(plan: Plan, machine: Machine) -> tuple[str, ...]:
    threads = sum(worker.threads or 1 for worker in plan.runtime.workers)
    cores = machine.num_cores()
    if threads <= cores:
        return ()
    return (f"the plan's workers use {threads} threads, this process may use {cores} cores: "
            f"expect less than the predicted speed",)  # fmt: skip
