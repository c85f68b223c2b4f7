"""Run the programs of a plan on nothing but names: would every rank end, with the right rows?

A program is one step. What each instruction promises:

    recv step    what a step is (positions, token ids) has come; it is read at once, holds no slot
    recv hidden  rows have come and hold a slot of the link until `free`
    run          rows go through layers [first, end) of this rank's stage, in order; in a TP group
                 through one layer, up to its partial rows (`mixer`: up to the MLP's normed rows)
    send hidden  the rows leave; a rank that has several peers sends them to each
    exchange     partial rows of one layer go to whoever adds them, and theirs come
    sample       once in all, on the rank that has just run the head (the driver)

The driver knows the step; every other rank runs nothing before it has received it.
"""

from collections import deque
from collections.abc import Iterator
from typing import assert_never

from plancc.ir.instruction import Exchange, Free, Instruction, Recv, Run, Sample, Send
from plancc.ir.plan import Plan, PlanLink
from plancc.ir.program_headers import header_problems
from plancc.ir.program_state import LOGITS, STEP, Inside, RankState, Rows, named


def walk_programs(plan: Plan) -> tuple[str, ...]:
    """Every problem met before the walk had to stop; () when all ranks end as they should."""
    if problems := tuple(header_problems(plan)):
        return problems
    return _Walk(plan).run()


def driver_of(plan: Plan) -> int:
    """The rank that holds the head, and so starts each step and samples."""
    ranks = [stage for stage, item in enumerate(plan.stages) for _ in item.ranks]
    holders = [index for index, stage in enumerate(plan.stages) if "head" in stage.blocks]
    return ranks.index(holders[0] if holders else len(plan.stages) - 1)


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
            RankState(
                program=program,
                layers=plan.stages[program.stage].layers,
                mixer=plan.stages[program.stage].mixer,
                group=tuple(p.rank for p in plan.programs if p.stage == program.stage),
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

    def _advance(self, rank: RankState) -> bool:
        """Run a rank until it must wait; whether it moved."""
        began, was_posted = rank.at, rank.is_posted
        while not self.problems and (item := rank.next) is not None:
            if isinstance(item, Recv) and not self.queues[item.link]:
                break
            if isinstance(item, Exchange) and not self._has_exchanged(rank, item):
                break
            self._do(rank, item)
            rank.at += 1
        return rank.at > began or rank.is_posted != was_posted

    def _do(self, rank: RankState, item: Instruction) -> None:
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
            case Exchange():
                self._do_exchange(rank, item)
            case _:
                assert_never(item)

    def _do_run(self, rank: RankState, item: Run) -> None:
        if not rank.knows_step:
            self._say(rank, "runs before it has received the step")
        if item.embed:
            self.ends["embed"] += 1
            rank.rows = 0
        if item.layers[0] != item.layers[1]:
            self._do_layers(rank, item)
        if item.head:
            self.ends["head"] += 1
            if rank.program.rank != self.driver:
                self._say(rank, f"the head lies on rank {self.driver}")
            if rank.rows != self.num_layers:
                self._say(rank, f"the head needs the rows after layer {self.num_layers - 1}, "
                                f"found {named(rank.rows)}")  # fmt: skip
            rank.rows = LOGITS

    def _do_layers(self, rank: RankState, item: Run) -> None:
        first, end = item.layers
        if not rank.layers[0] <= first < end <= rank.layers[1]:
            self._say(rank, f"layers [{first}, {end}) are not of this rank's stage")
        if rank.mixer != "single" and end != first + 1:
            self._say(rank, f"layers [{first}, {end}) of a group are exchanged one by one")
        parts = {"single": ("whole",), "replicated": ("whole",), "owned": ("mixer", "mlp")}
        if item.part not in parts[rank.mixer]:
            self._say(rank, f"a run of part {item.part} in a stage whose mixer is {rank.mixer}")
        if item.part == "mlp":
            if rank.rows != Inside("normed", first):
                self._say(rank, f"the MLP of layer {first} needs its normed rows, found "
                                f"{named(rank.rows)}")  # fmt: skip
            rank.rows = Inside("partial", first)
            return
        if not rank.holds_rows:
            self._say(rank, f"the mixer of layer {first} lies on rank {rank.group[0]}")
        if rank.rows != first:
            self._say(rank, f"layer {first} needs the rows after layer {first - 1}, "
                            f"found {named(rank.rows)}")  # fmt: skip
        if rank.is_lead:
            self.ran.extend(range(first, end))
        after: dict[str, Rows] = {"single": end, "replicated": Inside("partial", first)}
        rank.rows = after.get(rank.mixer, Inside("normed", first))

    def _do_send(self, rank: RankState, link: int) -> None:
        row = self.links[link]
        if row.from_ != rank.program.rank:
            self._say(rank, f"link {link} leaves rank {row.from_}, not this one")
        if row.payload == "step":
            if not rank.knows_step:
                self._say(rank, "sends a step that it has not received")
            self.queues[link].append(STEP)
            return
        is_normed = isinstance(rank.rows, Inside) and rank.rows.kind == "normed"
        if row.payload == "partial" or not (isinstance(rank.rows, int) or is_normed):
            self._say(rank, f"sends rows, found {named(rank.rows)}")
        self._push(rank, link, rank.rows)

    def _push(self, rank: RankState, link: int, rows: Rows) -> None:
        self.queues[link].append(rows)
        if len(self.queues[link]) > self.links[link].slots:
            self._say(rank, f"link {link} has {self.links[link].slots} slots, all taken")

    def _do_recv(self, rank: RankState, link: int) -> None:
        row, value = self.links[link], self.queues[link].popleft()
        if row.to != rank.program.rank:
            self._say(rank, f"link {link} leads to rank {row.to}, not this one")
        if row.payload == "step":
            rank.knows_step = True
            return
        rank.rows = value
        rank.held.add(link)

    def _has_exchanged(self, rank: RankState, item: Exchange) -> bool:
        """Let the rank's partial rows go, once; whether all that it waits for have come."""
        if not rank.is_posted:
            rank.is_posted = True
            if rank.mixer == "single":
                self._say(rank, f"layer {item.layer} is exchanged, but its stage is no TP group")
            elif item.ranks != rank.group:
                self._say(rank, f"expected an exchange of ranks {rank.group}, found {item.ranks}")
            elif rank.rows != Inside("partial", item.layer):
                self._say(rank, f"the exchange needs partial rows of layer {item.layer}, found "
                                f"{named(rank.rows)}")  # fmt: skip
            for link, row in self._partial_links():
                if row.from_ == rank.program.rank:
                    self._push(rank, link, rank.rows)
        return all(self.queues[link] for link, row in self._partial_links()
                   if row.to == rank.program.rank)  # fmt: skip

    def _do_exchange(self, rank: RankState, item: Exchange) -> None:
        for link, row in self._partial_links():
            if row.to == rank.program.rank:
                rows = self.queues[link].popleft()
                if rows != Inside("partial", item.layer):
                    self._say(rank, f"rank {row.from_} exchanges {named(rows)} instead")
        rank.rows = item.layer + 1 if rank.holds_rows else None
        rank.is_posted = False

    def _partial_links(self) -> Iterator[tuple[int, PlanLink]]:
        return ((i, row) for i, row in enumerate(self.links) if row.payload == "partial")

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

    def _say(self, rank: RankState, problem: str) -> None:
        self.problems.append(f"{rank.where}: {problem}")
