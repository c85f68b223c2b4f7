"""Wires between processes: which there are, that ranks which meet on them get on, what ends do."""

import os
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made, which other tests need so

import pytest
import torch
from plancc_apart import plan_on_cards
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import group_plan, in_one_process, stage
from plancc_plans import manifest_of

from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.backend.cuda_nccl import NcclSwap
from plancc.executor.backend.cuda_wire import CudaWire
from plancc.executor.seats import refuse_what_cannot_run, seats_of
from plancc.executor.wires import flow_of, tail_of, wires_of
from plancc.ir.errors import BadInput, RunFailed
from plancc.ir.instruction import Exchange, Recv, Send
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan, Program

SPEC = TinyLlama(num_layers=3)
Meeting = frozenset[tuple[int, int, int]]  # (link, from, to) of transfers that go at once


def gpus(layers: tuple[int, int], first: int, *tiles: int, mixer: Any = "single") -> PlacedStage:
    names = [f"gpu{first + i}" for i in range(len(tiles) + 1)]
    return stage(layers, *names, tiles=tiles, mixer=mixer)


SHAPES: dict[str, tuple[list[PlacedStage], Any]] = {
    "2": ([gpus((0, 1), 0), gpus((1, 3), 1)], "last"),
    "3": ([gpus((0, 1), 0), gpus((1, 2), 1), gpus((2, 3), 2)], "last"),
    "2, head first": ([gpus((0, 1), 0), gpus((1, 3), 1)], "first"),
    "3, head first": ([gpus((0, 1), 0), gpus((1, 2), 1), gpus((2, 3), 2)], "first"),
    "tp2": ([gpus((0, 3), 0, 5, mixer="replicated")], "last"),
    "tp3 owned": ([gpus((0, 3), 0, 5, 9, mixer="owned")], "last"),
    "2 x 2, head first": ([gpus((0, 1), 0, 5, mixer="replicated"),
                           gpus((1, 3), 2, 8, mixer="replicated")], "first"),
    "1, owned 3, 2": ([gpus((0, 1), 0), gpus((1, 2), 1, 5, 9, mixer="owned"),
                       gpus((2, 3), 4, 8, mixer="replicated")], "last"),
    "3, 2 owned": ([gpus((0, 2), 0, 3, 9, mixer="replicated"),
                    gpus((2, 3), 3, 8, mixer="owned")], "first"),
}  # fmt: skip


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> ModelManifest:
    return manifest_of(write_checkpoint(tmp_path_factory.mktemp("wires") / "toy", SPEC), SPEC)


def made(manifest: ModelManifest, shape: str) -> Plan:
    stages, head = SHAPES[shape]
    return plan_on_cards(manifest, stages, head=head)


def meetings(plan: Plan, program: Program) -> Iterator[Meeting]:
    """What a rank's stream meets others for, in its order."""
    mine, links = program.rank, plan.links
    for item in program.instructions:
        if isinstance(item, Send | Recv):
            link = links[item.link]
            if link.payload != "step":
                yield frozenset({(item.link, link.from_, link.to)})
        if isinstance(item, Exchange):
            yield frozenset((i, x.from_, x.to) for i, x in enumerate(links)
                            if x.payload == "partial" and mine in (x.from_, x.to))  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_that_meet_on_every_transfer_come_to_the_end(
    shape: str, manifest: ModelManifest
) -> None:
    """Each transfer needs both its ranks to be at it: three steps, no slots, nothing ahead."""
    plan = made(manifest, shape)
    left = {program.rank: [meeting for _ in range(3) for meeting in meetings(plan, program)]
            for program in plan.programs}  # fmt: skip
    done: dict[int, Meeting] = dict.fromkeys(left, frozenset())
    while any(left.values()):
        here = {rank: todo[0] - done[rank] for rank, todo in left.items() if todo}
        met = {move for rank, moves in here.items() for move in moves
               if all(move in here.get(end, ()) for end in move[1:])}  # fmt: skip
        assert met, {rank: sorted(moves) for rank, moves in here.items()}
        for rank, moves in here.items():
            done[rank] |= moves & met
            if done[rank] == left[rank][0]:
                left[rank].pop(0)
                done[rank] = frozenset()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_link_of_rows_has_one_wire_and_nothing_behind_the_news_waits(
    shape: str, manifest: ModelManifest
) -> None:
    plan = made(manifest, shape)
    refuse_what_cannot_run(plan)
    rows = [i for i, link in enumerate(plan.links) if link.payload != "step"]
    assert sorted(i for wire in wires_of(plan) for i in wire.links) == rows
    assert all(plan.links[i].transport == "nccl" for i in rows)
    for seat in seats_of(plan):
        first = tail_of(plan, seat)
        assert first is not None
        news = [plan.links[item.link].payload == "step"
                for item in seat.program.instructions if isinstance(item, Send | Recv)]  # fmt: skip
        assert first == sum(news)


def test_a_group_has_one_wire_and_a_hop_its_own(manifest: ModelManifest) -> None:
    plan = made(manifest, "1, owned 3, 2")
    assert [(wire.name, wire.ranks) for wire in wires_of(plan)] == [
        ("stage 0001", (1, 2, 3)), ("stage 0002", (4, 5)),
        ("wire 0000", (0, 1)), ("wire 0003", (1, 4)), ("wire 0004", (1, 5)),
    ]  # fmt: skip
    group = wires_of(plan)[0]
    assert [group.sources(plan, rank) for rank in group.ranks] == [(1, 2), (0,), (0,)]
    assert [group.targets(plan, rank) for rank in group.ranks] == [(1, 2), (0,), (0,)]
    flows = [flow_of(seats_of(plan), link) for link in plan.links if link.payload != "step"]
    assert sorted(flows) == ["normed"] * 2 + ["partial"] * 4 + ["rows"] * 3


def test_no_tail_where_rows_go_otherwise(manifest: ModelManifest) -> None:
    for plan in (in_one_process(made(manifest, "tp2")),
                 group_plan(manifest, [stage((0, 1), "cpu0"), stage((1, 3), "cpu1")])):  # fmt: skip
        assert [tail_of(plan, seat) for seat in seats_of(plan)] == [None, None]
        assert wires_of(plan) == ()


def test_links_that_nothing_here_carries_are_refused(manifest: ModelManifest) -> None:
    plan = group_plan(manifest, [stage((0, 1), "cpu0"), stage((1, 3), "cpu1")])
    links = tuple(link.model_copy(update={"transport": "nccl"}) for link in plan.links)
    with pytest.raises(BadInput, match=r"links\[0\].transport: rows of kind cpu go by gloo"):
        refuse_what_cannot_run(plan.model_copy(update={"links": links}))
    plan = made(manifest, "tp2")
    links = tuple(link.model_copy(update={"transport": "gloo"}) for link in plan.links)
    with pytest.raises(BadInput, match=r"links\[0\].transport: within a TP group of kind cuda"):
        refuse_what_cannot_run(plan.model_copy(update={"links": links}))


def test_a_torch_without_nccl_is_named() -> None:
    if hasattr(torch.distributed, "ProcessGroupNCCL"):
        pytest.skip("this torch has NCCL")
    with pytest.raises(BadInput, match=r"nccl between processes, which torch .* built without"):
        NcclSwap(None, "wire 0000", 0, 2)


class Bare:
    """What a wire needs of a rank."""

    device = torch.device("cpu")

    def on_stream(self) -> Any:
        return torch.no_grad()


class Echo:
    """A swap that notes what it was given, and brings ones."""

    def __init__(self) -> None:
        self.moves: list[tuple[list[int], list[int]]] = []

    def __call__(self, sent: list[torch.Tensor], taken: list[torch.Tensor]) -> None:
        self.moves.append(([len(rows) for rows in sent], [len(rows) for rows in taken]))
        for rows in taken:
            rows.fill_(1)


def test_an_exchange_goes_at_once_when_all_of_it_is_there() -> None:
    wire = CudaWire(Bare(), echo := Echo(), 3)  # type: ignore[arg-type]
    outlets = [wire.outlet(place, "partial") for place in (0, 2)]
    inlets = [wire.inlet(place, "partial", shape=(2, 8, 1, 4), dtype=torch.float32)
              for place in (0, 2)]  # fmt: skip
    for count in (5, 1, 8):
        for inlet in inlets:
            inlet.expect(count)
        outlets[0].send_rows(torch.zeros(count, 2, 4))
        assert all(inlet.has_arrived() for inlet in inlets)
        outlets[1].send_rows(torch.zeros(count, 2, 4))
        parts = [inlet.take_rows() for inlet in inlets]
        assert [part.shape for part in parts] == [(count, 1, 4)] * 2
        assert all(bool(part.all()) for part in parts)
        for inlet in inlets:
            inlet.free()
    assert echo.moves == [([count, 0, count], [count, 0, count]) for count in (5, 1, 8)]


def test_whoever_only_takes_takes_all_at_once_and_hops_go_one_by_one() -> None:
    wire = CudaWire(Bare(), echo := Echo(), 3)  # type: ignore[arg-type]
    inlets = [wire.inlet(place, "partial", shape=(2, 8, 1, 4), dtype=torch.float32)
              for place in (1, 2)]  # fmt: skip
    for inlet in inlets:
        inlet.expect(3)
    for inlet in inlets:
        inlet.take_rows()
    wire.outlet(1, "rows").send_rows(torch.zeros(2, 4))
    hop = wire.inlet(2, "rows", shape=(2, 8, 4), dtype=torch.float32)
    hop.expect(6)
    assert len(hop.take_rows()) == 6
    assert echo.moves == [([0, 0, 0], [0, 3, 3]), ([0, 2, 0], [0, 0, 0]), ([0, 0, 0], [0, 0, 6])]


def test_what_does_not_arrive_is_found_as_a_wire_opens() -> None:
    wire = CudaWire(Bare(), Echo(), 2)  # type: ignore[arg-type]
    with pytest.raises(RunFailed, match="what rank 1 of its wire sends does not arrive"):
        wire.check(0, (1,), (1,))
