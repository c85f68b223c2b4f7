"""Run the programs of a plan on nothing but names: would every rank end, with the right rows?

A program is one step. What each instruction promises:

    recv step    what a step is (positions, token ids) has come; it is read at once, holds no slot
    recv hidden  rows have come and hold a slot of the link until `free`
    run          rows go through layers [first, end) of this rank's stage, in order
    send hidden  the rows leave; this rank has none afterwards
    sample       once in all, on the rank that has just run the head (the driver)

The driver knows the step; every other rank runs nothing before it has received it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import assert_never

from plancc.ir.instruction import Exchange, Free, Instruction, Recv, Run, Sample, Send
from plancc.ir.plan import Plan, PlanLink, Program

LOGITS = "logits"
Rows = int | str | None  # layers done so far, or LOGITS; None: this rank holds no rows
STEP = "step"


@dataclass
class _Rank:
    program: Program
    layers: tuple[int, int]
    knows_step: bool
    rows: Rows = None
    at: int = 0
    held: set[int] = field(default_factory=set)

    @property
    def where(self) -> str:
        return f"programs[{self.program.rank}].instructions[{self.at}]"

    @property
    def next(self) -> Instruction | None:
        done = self.at >= len(self.program.instructions)
        return None if done else self.program.instructions[self.at]


def walk_programs(plan: Plan) -> tuple[str, ...]:
    """Every problem met before the walk had to stop; () when all ranks end as they should."""
    if problems := tuple(_header_problems(plan)):
        return problems
    return _Walk(plan).run()


def driver_of(plan: Plan) -> int:
    """The rank that holds the head, and so starts each step and samples."""
    ranks = [stage for stage, item in enumerate(plan.stages) for _ in item.ranks]
    holders = [index for index, stage in enumerate(plan.stages) if "head" in stage.blocks]
    return ranks.index(holders[0] if holders else len(plan.stages) - 1)


def _header_problems(plan: Plan) -> Iterator[str]:
    seats = [(index, rank.device) for index, s in enumerate(plan.stages) for rank in s.ranks]
    if len(plan.programs) != len(seats):
        yield f"programs: expected one for each of {len(seats)} ranks, found {len(plan.programs)}"
        return
    for number, (program, seat) in enumerate(zip(plan.programs, seats, strict=True)):
        found = (program.rank, program.stage, program.device)
        if found != (number, *seat):
            yield (
                f"programs[{number}]: expected rank, stage, device {(number, *seat)}, found {found}"
            )
    for number, program in enumerate(plan.programs):
        for index, item in enumerate(program.instructions):
            if isinstance(item, Send | Recv | Free) and item.link >= len(plan.links):
                yield f"programs[{number}].instructions[{index}]: no link {item.link}"
        segments = [item.segment for item in program.instructions if isinstance(item, Run)]
        if segments != list(range(len(segments))):
            yield f"programs[{number}]: expected segments 0, 1 ... in order, found {segments}"


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.links: tuple[PlanLink, ...] = plan.links
        self.num_layers = len(plan.model.layers)
        self.driver = driver_of(plan)
        self.queues: list[deque[Rows]] = [deque() for _ in plan.links]
        self.problems: list[str] = []
        self.ran: list[int] = []
        self.ends = {"embed": 0, "head": 0, "sample": 0}
        self.ranks = [
            _Rank(
                program=program,
                layers=plan.stages[program.stage].layers,
                knows_step=program.rank == self.driver,
            )
            for program in plan.programs
        ]

    def run(self) -> tuple[str, ...]:
        moved = True
        while moved and not self.problems:
            moved = any([self._advance(rank) for rank in self.ranks])
        if not self.problems:
            self.problems.extend(self._unfinished())
        return tuple(self.problems)

    def _advance(self, rank: _Rank) -> bool:
        """Run a rank until it must wait; whether it moved."""
        began = rank.at
        while not self.problems and (item := rank.next) is not None:
            if isinstance(item, Recv) and not self.queues[item.link]:
                break
            self._do(rank, item)
            rank.at += 1
        return rank.at > began

    def _do(self, rank: _Rank, item: Instruction) -> None:
        match item:
            case Run():
                self._do_run(rank, item)
            case Send(link=link):
                self._do_send(rank, link)
            case Recv(link=link):
                self._do_recv(rank, link)
            case Free(link=link):
                if link not in rank.held:
                    self._say(rank, f"link {link} holds nothing to free")
                rank.held.discard(link)
            case Sample():
                self.ends["sample"] += 1
                if rank.rows != LOGITS:
                    self._say(rank, "sample without logits: no head has run here")
            case Exchange(layer=layer):
                self._say(rank, f"layer {layer} is exchanged, but its stage is no TP group")
            case _:
                assert_never(item)

    def _do_run(self, rank: _Rank, item: Run) -> None:
        first, end = item.layers
        if not rank.knows_step:
            self._say(rank, "runs before it has received the step")
        if item.embed:
            self.ends["embed"] += 1
            rank.rows = 0
        if first != end:
            if not rank.layers[0] <= first < end <= rank.layers[1]:
                self._say(rank, f"layers [{first}, {end}) are not of this rank's stage")
            if rank.rows != first:
                self._say(rank, f"layer {first} needs the rows after layer {first - 1}, "
                                f"found {_named(rank.rows)}")  # fmt: skip
            self.ran.extend(range(first, end))
            rank.rows = end
        if item.head:
            self.ends["head"] += 1
            if rank.program.rank != self.driver:
                self._say(rank, f"the head lies on rank {self.driver}")
            if rank.rows != self.num_layers:
                self._say(rank, f"the head needs the rows after layer {self.num_layers - 1}, "
                                f"found {_named(rank.rows)}")  # fmt: skip
            rank.rows = LOGITS

    def _do_send(self, rank: _Rank, link: int) -> None:
        row = self.links[link]
        if row.from_ != rank.program.rank:
            self._say(rank, f"link {link} leaves rank {row.from_}, not this one")
        if row.payload == "step":
            if not rank.knows_step:
                self._say(rank, "sends a step that it has not received")
            self.queues[link].append(STEP)
            return
        if not isinstance(rank.rows, int):
            self._say(rank, f"sends rows, found {_named(rank.rows)}")
        self.queues[link].append(rank.rows)
        rank.rows = None
        if len(self.queues[link]) > row.slots:
            self._say(rank, f"link {link} has {row.slots} slots, all taken")

    def _do_recv(self, rank: _Rank, link: int) -> None:
        row, value = self.links[link], self.queues[link].popleft()
        if row.to != rank.program.rank:
            self._say(rank, f"link {link} leads to rank {row.to}, not this one")
        if row.payload == "step":
            rank.knows_step = True
            return
        rank.rows = value
        rank.held.add(link)

    def _unfinished(self) -> Iterator[str]:
        for rank in self.ranks:
            if rank.next is not None:
                yield f"{rank.where}: waits for ever for {rank.next.model_dump()}"
            for link in sorted(rank.held):
                yield f"programs[{rank.program.rank}]: link {link} is received and never freed"
        for link, queue in enumerate(self.queues):
            if queue:
                yield f"links[{link}]: {len(queue)} send(s) are never received"
        if self.ran != list(range(self.num_layers)):
            last = self.num_layers - 1
            yield f"programs: expected layers 0..{last} once in order, ran {self.ran}"
        for name, times in self.ends.items():
            if times != 1:
                yield f"programs: expected one {name}, found {times}"

    def _say(self, rank: _Rank, problem: str) -> None:
        self.problems.append(f"{rank.where}: {problem}")


def _named(rows: Rows) -> str:
    if rows is None:
        return "no rows"
    return f"rows after layer {rows - 1}" if isinstance(rows, int) else rows
