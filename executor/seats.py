"""Who runs what: the plan's ranks, each with its stage, device, worker and program."""

from dataclasses import dataclass
from functools import cached_property

from plancc.executor.backends import ON_DEVICE
from plancc.executor.group import Group
from plancc.ir.errors import BadInput
from plancc.ir.instruction import Sample
from plancc.ir.plan import Plan, Program, Stage, Worker


@dataclass(frozen=True)
class Seat:
    """One rank of the plan. `blocks` and `tiles` are what it holds besides its layers' mixers;
    the mixers are not here where the group has an owner and this is another."""

    rank: int
    stage: int
    device: str
    kind: str
    worker: str
    host: str
    layers: tuple[int, int]
    blocks: tuple[str, ...]
    tiles: tuple[int, int]
    program: Program
    group: Group | None = None  # None: the stage is this rank alone

    @cached_property
    def is_driver(self) -> bool:
        """The driver starts every step and samples."""
        return any(isinstance(item, Sample) for item in self.program.instructions)


def seats_of(plan: Plan) -> tuple[Seat, ...]:
    """The plan's ranks in order. The plan must be sound (ir.legality)."""
    homes = {name: worker for worker in plan.runtime.workers for name in worker.devices}
    seats: list[Seat] = []
    for index, stage in enumerate(plan.stages):
        for number, rank in enumerate(stage.ranks):
            program = plan.programs[len(seats)]
            worker = homes[rank.device]
            seats.append(
                Seat(
                    rank=program.rank,
                    stage=index,
                    device=rank.device,
                    kind=plan.device(rank.device).kind,
                    worker=worker.name,
                    host=worker.host,
                    layers=stage.layers,
                    blocks=stage.blocks if number == 0 else (),
                    tiles=rank.mlp_tiles,
                    program=program,
                    group=_group(stage, number),
                )
            )
    return tuple(seats)


def _group(stage: Stage, number: int) -> Group | None:
    if stage.mixer == "single":
        return None
    return Group(stage.mixer, tuple(rank.mlp_tiles for rank in stage.ranks), number)


def driver_seat(plan: Plan) -> Seat:
    return next(seat for seat in seats_of(plan) if seat.is_driver)


def worker_named(plan: Plan, name: str) -> Worker:
    return next(worker for worker in plan.runtime.workers if worker.name == name)


def steps_in_flight(plan: Plan) -> int:
    """Prompt chunks that may be under way at once, so that every stage has work.

    One for each stage where each rank is a process of its own. Fewer where a process serves
    several ranks: it must never wait in one rank's send while another rank of it is waited for.
    """
    workers = [seat.worker for seat in seats_of(plan)]
    if len(set(workers)) == 1:
        return 1
    return len(plan.stages) if len(set(workers)) == len(workers) else min(2, len(plan.stages))


def refuse_what_cannot_run(plan: Plan) -> None:
    """Raises BadInput for a sound plan that asks for more than this executor has."""
    for index, link in enumerate(plan.links):
        kinds = {plan.device(plan.programs[rank].device).kind for rank in (link.from_, link.to)}
        names = " and ".join(sorted(kinds))
        if link.transport == "nccl" and (len(kinds) > 1 or not kinds <= ON_DEVICE):
            raise BadInput(f"links[{index}].transport: rows of kind {names} go by gloo between "
                           f"processes, found nccl: compile with --workers host")  # fmt: skip
        is_inside = plan.programs[link.from_].stage == plan.programs[link.to].stage
        if link.transport == "gloo" and is_inside and link.payload != "step" and kinds & ON_DEVICE:
            raise BadInput(f"links[{index}].transport: within a TP group of kind {names} rows go "
                           f"by nccl or within a process, found gloo: give the group to one "
                           f"host, or compile with --workers device")  # fmt: skip
