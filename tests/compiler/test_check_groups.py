"""`plancc check` accepts plans with TP groups and names what an edit made wrong in one."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from plancc_bruteforce import Candidate
from plancc_bruteforce_bytes import Group
from plancc_builders import build_device
from plancc_edits import both, more, move_bytes, put, single_edits, without
from plancc_examples import KIB, NUM_LAYERS, tiny_manifest
from plancc_hand_plans import restamp
from plancc_tp_plans import TILES, TWO_GROUPS, group_plan, many_devices
from pydantic import ValidationError

from plancc.compiler.check import check_plan
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

Edit = Callable[[dict[str, Any]], None]


def shape_of(*groups: tuple[str, str], cuts: tuple[int, ...]) -> Candidate:
    """Stages such as ("d0 d1", "owned"), tiles dealt to ranks as evenly as they go."""
    rows = tuple(Group(tuple(names.split()), mixer) for names, mixer in groups)  # type: ignore[arg-type]
    deals = []
    for group in rows:
        ends = [TILES * i // len(group.devices) for i in range(len(group.devices) + 1)]
        runs = tuple(itertools.pairwise(ends))
        deals.append(runs if len(group.devices) > 1 else ())
    return Candidate(rows, (0, *cuts, NUM_LAYERS), tuple(deals), "last", ())


SOUND: dict[str, tuple[Candidate, dict[str, Any]]] = {
    "two groups": (TWO_GROUPS, {}),
    "one group": (shape_of(("d0 d1", "replicated"), cuts=()), {"tp": 2, "slots": 3}),
    "all four": (shape_of(("d3 d0 d1 d2", "owned"), cuts=()), {"tp": 4, "objective": "prefill"}),
    "a group between": (
        shape_of(("d0", "single"), ("d1 d2", "replicated"), ("d3", "single"), cuts=(2, 4)),
        {"objective": "throughput", "slots": 4},
    ),
    "head first": (replace(TWO_GROUPS, head="first"), {"head": "first"}),
    "as asked": (
        shape_of(("d3 d1", "replicated"), ("d2 d0", "replicated"), cuts=(3,)),
        {"devices": ("d3", "d1", "d2", "d0"), "stage_layers": (3, 3), "max_devices": 4},
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_plan_with_groups_is_sound(name: str) -> None:
    shape, flags = SOUND[name]
    assert check_plan(group_plan(shape, **flags), tiny_manifest(), many_devices()) == ()


def swap_ranks(data: dict[str, Any]) -> None:
    """d3 owns what d2 did, with the same tiles; programs follow, bytes and times do not."""
    for rank, name in ((0, "d3"), (1, "d2")):
        data["stages"][1]["ranks"][rank]["device"] = name
        data["programs"][2 + rank]["device"] = name


def lose_exchanges(data: dict[str, Any]) -> None:
    """Times as if partial rows were never sent."""
    step = data["predicted"]["decode"]
    step["step_ns"] -= sum(stage["exchange_ns"] for stage in step["stages"])


def deal(stage: int, *ends: int) -> Edit:
    runs = list(zip((0, *ends), (*ends, TILES), strict=True))
    edits = [put("stages", stage, "ranks", i, "mlp_tiles", value=list(run))
             for i, run in enumerate(runs)]  # fmt: skip
    return both(*edits)


LINKS = {"spread": 0, "hop": 1, "owner": 2, "partial": 6, "back": 8}

# name -> (edit of the plan of two groups, what must be said)
EDITS: dict[str, tuple[Edit, str]] = {
    "a tile moved": (deal(0, 7), "device d0 ledger.weights"),
    "a tile moved changes the roots": (deal(0, 7), "links[6].bytes_per_row: expected 768"),
    "a tile in no share": (
        put("stages", 0, "ranks", 1, "mlp_tiles", value=[9, 16]),
        "stage[0].ranks.mlp_tiles: expected runs that cover [0, 16)",
    ),
    "a tile in two shares": (
        put("stages", 0, "ranks", 1, "mlp_tiles", value=[7, 16]),
        "stage[0].ranks.mlp_tiles: expected runs",
    ),
    "a rank without tiles": (deal(1, 16), "stage[1].ranks.mlp_tiles: expected runs"),
    "a group that says single": (
        put("stages", 0, "mixer", value="single"),
        "stage[0].mixer: single with 2 rank(s)",
    ),
    "replicas that are said to be owned": (put("stages", 0, "mixer", value="owned"), "links"),
    "an owner that is said to have replicas": (
        put("stages", 1, "mixer", value="replicated"),
        "links: expected 1 of partial rows from rank 2 to 3, found 0",
    ),
    "owner and helper swapped": (swap_ranks, "device d3 ledger.kv"),
    "a device in two groups": (
        both(
            put("stages", 1, "ranks", 1, "device", value="d1"),
            put("programs", 3, "device", value="d1"),
        ),
        "stage[1].ranks: d1 is in a group and has 2 seats",
    ),
    "a faster exchange": (
        put("predicted", "decode", "stages", 0, "exchange_ns", value=more(-1)),
        "predicted.decode.stages[0].exchange_ns: recomputed",
    ),
    "a faster exchange of prompt rows": (
        put("predicted", "prefill", "stages", 1, "exchange_ns", value=0),
        "predicted.prefill.stages[1].exchange_ns: recomputed",
    ),
    "a step without its exchanges": (lose_exchanges, "predicted.decode.step_ns: recomputed"),
    "a hop to one replica": (
        put("predicted", "decode", "stages", 0, "hop_ns", value=more(-1)),
        "predicted.decode.stages[0].hop_ns",
    ),
    "partial rows not sent": (
        without("links", LINKS["back"]),
        "links: expected 1 of partial rows from rank 3 to 2, found 0",
    ),
    "narrow partial rows": (
        put("links", LINKS["partial"], "bytes_per_row", value=64),
        "links[6].bytes_per_row: expected 256, found 64",
    ),
    "partial rows to another stage": (
        put("links", LINKS["partial"], "to", value=2),
        "partial rows from rank 0 to 1, found 0",
    ),
    "an owner that sends rows nobody asked for": (
        lambda data: data["links"].append(data["links"][LINKS["owner"]]),
        "links: 1 of hidden from rank 2 to 3 too many",
    ),
    "buffers for no partial rows": (
        move_bytes("d0", "hop_buffers", -64, "weights"),
        "device d0 ledger.hop_buffers: recomputed",
    ),
    "kv on a helper": (
        move_bytes("d3", "kv", 1024, "weights"),
        "device d3 ledger.kv: recomputed 0, found 1024",
    ),
    "a helper that is lighter": (
        move_bytes("d3", "weights", -1024, "workspace"),
        "device d3 ledger.weights: recomputed",
    ),
    "a replica without its kv": (
        move_bytes("d1", "kv", -49152, "blocks"),
        "device d1 ledger.kv: recomputed 49152, found 0",
    ),
    "blocks on a rank that does not lead": (
        move_bytes("d1", "blocks", 4096, "weights"),
        "device d1 ledger.blocks: recomputed 0",
    ),
    "an exchange lost": (
        lambda data: data["programs"][0]["instructions"].pop(4),
        "programs[",
    ),
    "an exchange with others": (
        put("programs", 0, "instructions", 4, "ranks", value=[0, 2]),
        "programs[0].instructions[4]",
    ),
    "an exchange of another layer": (
        put("programs", 3, "instructions", 4, "layer", value=4),
        "programs[3].instructions[4]",
    ),
    "no groups asked": (
        put("ask", "tp", value="off"),
        "stage[0].ranks: --tp off was asked, found 2 rank(s)",
    ),
    "groups of one asked": (put("ask", "tp", value=1), "stage[1].ranks: --tp 1 was asked"),
    "groups of three asked": (
        put("ask", "tp", value=3),
        "stage[1].ranks: --tp 3 was asked, found 2 rank(s)",
    ),
    "fewer devices asked": (
        put("ask", "max_devices", value=3),
        "stages: --max-devices 3 was asked, found 4",
    ),
    "another order asked": (
        put("ask", "devices", value=["d1", "d0", "d2", "d3"]),
        "stages: --devices d1,d0,d2,d3 was asked, found d0,d1,d2,d3",
    ),
    "four stages asked": (
        put("ask", "stage_layers", value=[2, 1, 2, 1]),
        "stages: --stage-layers 2,1,2,1 was asked, found 3,3",
    ),
    "a head asked on a helper": (
        put("ask", "pin", value={"head": "d3"}),
        "stage[1].blocks: head is pinned to d3, found on d2",
    ),
}


def edited(edit: Edit) -> Plan:
    data = copy.deepcopy(group_plan().data())
    edit(data)
    return Plan.model_validate(data)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_group_is_named(name: str) -> None:
    edit, expected = EDITS[name]
    problems = check_plan(restamp(edited(edit)), tiny_manifest(), many_devices())
    assert any(expected in problem for problem in problems), problems


FREE = {
    ("provenance", "plancc"),
    ("provenance", "solver", "name"),
    ("provenance", "solver", "version"),
    ("provenance", "solver", "space"),
    ("ask", "margin"),
    ("ask", "accept_gap"),
}


def test_no_other_value_of_a_plan_with_groups_can_be_changed_unnoticed() -> None:
    manifest, topology, unnoticed = tiny_manifest(), many_devices(), set()
    for path, other in single_edits(group_plan().data()):
        try:
            plan = Plan.model_validate(other)
        except ValidationError:
            continue
        if path[:2] != ("runtime", "timeouts") and not check_plan(
            restamp(plan), manifest, topology
        ):
            unnoticed.add(path)
    assert unnoticed == FREE


def problems_on(topology: Topology) -> tuple[str, ...]:
    """What is said of the plan of two groups where the machines have changed since."""
    return check_plan(group_plan(), tiny_manifest(), topology)


def test_a_slower_exchange_is_told_by_the_stage_that_waits_for_it() -> None:
    slower = many_devices()
    row = slower.exchanges[0].model_copy(update={"points": ((256.0, 9.5), (65536.0, 20.0))})
    problems = problems_on(slower.model_copy(update={"exchanges": (row,)}))
    assert any("decode.stages[0].exchange_ns" in problem for problem in problems)
    assert not any("decode.stages[1].exchange_ns" in problem for problem in problems)


def test_an_exchange_that_was_not_measured_goes_by_the_links() -> None:
    problems = problems_on(many_devices(exchanges=()))
    assert any("decode.stages[0].exchange_ns" in problem for problem in problems)


def test_a_trunk_adds_up_what_two_replicas_send() -> None:
    shape = shape_of(("d0 d1", "replicated"), ("d2 d3", "replicated"), cuts=(3,))
    plan = group_plan(shape, many_devices(links={}))
    shared = many_devices(links={("d2", "d3"): {"trunk": "t"}, ("d3", "d2"): {"trunk": "t"}})
    problems = check_plan(plan, tiny_manifest(), shared)
    assert any("decode.stages[1].exchange_ns" in problem for problem in problems)
    apart = many_devices(links={("d0", "d2"): {"trunk": "t"}, ("d1", "d3"): {"trunk": "t"}})
    problems = check_plan(plan, tiny_manifest(), apart)
    assert any("decode.stages[0].hop_ns" in problem for problem in problems)


def test_a_group_of_two_hosts_needs_a_measured_exchange() -> None:
    topology = many_devices()
    moved = tuple(
        build_device(device.name, 4000 * KIB, gb_s=1.0, host="h1" if device.name == "d3" else "h0")
        for device in topology.devices
    )
    hosts = (*topology.hosts, topology.hosts[0].model_copy(update={"name": "h1"}))
    apart = topology.model_copy(update={"devices": moved, "hosts": hosts})
    said = "stage[1].ranks: a group is of one host unless its exchange was measured"
    assert any(said in problem for problem in problems_on(apart))
    measured = topology.exchanges[0].model_copy(update={"group": ("d2", "d3")})
    joined = apart.model_copy(update={"exchanges": (*apart.exchanges, measured)})
    assert not any(said in problem for problem in problems_on(joined))


def test_more_than_four_ranks_must_be_equal() -> None:
    five = shape_of(("d0 d1 d2 d3 d4", "replicated"), cuts=())
    unequal = many_devices(5, links={}, exchanges=())
    problems = check_plan(group_plan(five, unequal), tiny_manifest(), unequal)
    assert problems == ("stage[0].ranks: at most 4 ranks unless all are equal, found 5",)
    alike = [device.model_copy(update={"read_gb_s": 8.0}) for device in unequal.devices]
    equal = unequal.model_copy(update={"devices": tuple(alike)})
    assert check_plan(group_plan(five, equal), tiny_manifest(), equal) == ()


def test_ranks_stand_by_name_after_the_lead() -> None:
    shape = shape_of(("d0 d2 d1", "owned"), cuts=())
    problems = check_plan(group_plan(shape), tiny_manifest(), many_devices())
    assert problems == ("stage[0].ranks: after the first rank by name, found d0, d2, d1",)


def test_a_replicated_group_without_a_block_begins_by_name() -> None:
    shape = shape_of(("d0", "single"), ("d2 d1", "replicated"), ("d3", "single"), cuts=(2, 4))
    problems = check_plan(group_plan(shape), tiny_manifest(), many_devices())
    assert problems == ("stage[1].ranks: without a block d1 is the first rank, found d2",)
