"""The brute force itself, against sums made by hand and against trying everything without passing
anything over."""

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from plancc_bruteforce import BruteForce, Candidate, Judged, Search, is_searched
from plancc_bruteforce_bytes import Group, Role
from plancc_bruteforce_shapes import is_led_by_name, lineups, tile_runs
from plancc_bruteforce_sums import Sums
from plancc_builders import build_ask, build_device, build_model, build_topology
from plancc_equal_devices import EqualDevices, random_equal_question
from plancc_random_groups import random_group_question

from plancc.ir.exchange import Exchange
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

ROW, PART = 128, 256  # bytes of a hidden row (bfloat16) and of a partial row (float32), 64 wide
REPLICATED = Group(("a", "b"), "replicated")
OWNED = Group(("a", "b"), "owned")
ONLY = Role(stage=0, num_stages=1, has_head=False, head_first=False, blocks=())
HALVES = ((0, 1), (1, 2))


def toy_model(tiles: int = 2, count: int = 1, kv: int = 0) -> ModelShape:
    """Layers of 1,000 bytes of mixer and 3,000 of MLP."""
    layer = Layer.model_validate({
        "mixer": {"kind": "attention", "weight_bytes": 1000, "kv_bytes_per_token": kv},
        "mlp": {"kind": "swiglu", "weight_bytes": 3000, "intermediate_size": tiles * 10,
                "tiles": tiles},
    })  # fmt: skip
    return build_model([layer] * count)


def toy_machine(names: str = "ab", free: int = 10**6, **fields: Any) -> Topology:
    """A byte takes a ns to read and a ns to send, after 100 ns."""
    devices = [build_device(name, free, gb_s=1.0) for name in names]
    return build_topology(devices, latency_us=0.1, gb_s=1.0, **fields)


def sums_of(model: ModelShape, topology: Topology, rows: int = 1, **flags: Any) -> Sums:
    ask = build_ask(model, **({"context": 16, "prefill_chunk": 1} | flags))
    return Sums(model, topology, ask, ask.context or 1, rows)


def test_one_device_reads_all_its_bytes() -> None:
    sums = sums_of(toy_model(kv=10), toy_machine())
    assert sums.compute(Group(("a",), "single"), (), (0, 1), ONLY) == 4000 + 16 * 10


def test_ranks_of_a_replicated_group_read_the_mixer_and_half_of_the_mlp() -> None:
    sums = sums_of(toy_model(), toy_machine())
    assert sums.compute(REPLICATED, HALVES, (0, 1), ONLY) == 1000 + 1500
    # the partial rows go both ways at once; the lead has sent the embedded row before
    assert sums.exchanged(REPLICATED, HALVES, (0, 1), ONLY) == (100 + PART) + (100 + ROW)
    later = ONLY._replace(stage=1, num_stages=2)
    assert sums.exchanged(REPLICATED, HALVES, (0, 1), later) == 100 + PART


def test_an_owner_sends_rows_and_gets_partial_rows_back() -> None:
    sums = sums_of(toy_model(), toy_machine())
    assert sums.compute(OWNED, HALVES, (0, 1), ONLY) == 1000 + 1500
    assert sums.exchanged(OWNED, HALVES, (0, 1), ONLY) == (100 + ROW) + (100 + PART)


def test_the_larger_share_and_its_subtrees_decide() -> None:
    sums, runs = sums_of(toy_model(tiles=4), toy_machine()), ((0, 1), (1, 4))
    assert sums.compute(REPLICATED, runs, (0, 1), ONLY) == 1000 + 3 * 750
    assert sums.exchange(REPLICATED, runs) == 100 + 2 * PART  # [1, 2) and [2, 4)


def test_what_one_device_sends_adds_up_and_so_does_what_a_trunk_carries() -> None:
    three = Group(("a", "b", "c"), "replicated")
    thirds = ((0, 1), (1, 2), (2, 3))
    model = toy_model(tiles=3)
    assert sums_of(model, toy_machine("abc")).exchange(three, thirds) == 101 + 2 * (PART - 1)
    shared = {("a", "b"): {"trunk": "t"}, ("b", "a"): {"trunk": "t"}, ("c", "a"): {"trunk": "t"}}
    sums = sums_of(model, toy_machine("abc", links=shared))
    assert sums.exchange(three, thirds) == 101 + 3 * (PART - 1)


def test_a_measured_exchange_wins_in_a_replicated_group_only() -> None:
    measured = (Exchange(group=("b", "a"), points=((1.0, 0.05), (512.0, 0.561))),)
    sums = sums_of(toy_model(), toy_machine(exchanges=measured))
    assert sums.exchange(REPLICATED, HALVES) == 50 + (PART - 1)
    assert sums.exchange(OWNED, HALVES) == 200 + ROW + PART


def test_an_owned_group_goes_by_its_own_points_where_there_are_some() -> None:
    measured = Exchange(group=("b", "a"), points=((1.0, 9.0), (512.0, 9.511)),
                        owned_points=((1.0, 0.05), (512.0, 0.561)))  # fmt: skip
    sums = sums_of(toy_model(), toy_machine(exchanges=(measured,)))
    assert sums.exchange(OWNED, HALVES) == -(-(50 + ROW - 1 + 50 + PART - 1) // 2)


def test_what_all_compute_at_once_is_slowed_and_an_owners_mixer_is_not() -> None:
    measured = Exchange(group=("a", "b"), points=((1.0, 1.0),), slowdown=1.2504)
    sums = sums_of(toy_model(), toy_machine(exchanges=(measured,)))
    assert sums.compute(REPLICATED, HALVES, (0, 1), ONLY) == 3125  # of 1,000 + 1,500
    assert sums.compute(OWNED, HALVES, (0, 1), ONLY) == 1000 + 1875


def test_rows_go_to_every_rank_that_holds_them() -> None:
    sums = sums_of(toy_model(), toy_machine("abcd"))
    single, pair = Group(("c",), "single"), Group(("c", "d"), "replicated")
    assert sums.hop(REPLICATED, pair) == 100 + ROW  # a to c and b to d, at once
    assert sums.hop(single, REPLICATED) == 101 + 2 * (ROW - 1)
    assert sums.hop(REPLICATED, single) == 100 + ROW
    assert sums.hop(OWNED, Group(("c", "d"), "owned")) == 100 + ROW
    assert sums.back(pair, REPLICATED, head_first=False) == 100 + 64


def test_bytes_of_an_owner_and_of_who_helps_it() -> None:
    sums = sums_of(toy_model(kv=10), toy_machine(), slots=1, prefill_chunk=2)
    owner = sums.columns(OWNED, HALVES, (0, 1), ONLY, 0)
    helper = sums.columns(OWNED, HALVES, (0, 1), ONLY, 1)
    # two slots of two rows: two partial rows and a normed one; the helper keeps its own partial row
    assert owner == (1000 + 1500, 160, 0, 0, 2 * 2 * (2 * PART + ROW), 0)
    assert helper == (1500, 0, 0, 0, 2 * 2 * (PART + ROW), 0)
    replica = sums.columns(REPLICATED, HALVES, (0, 1), ONLY, 1)
    assert replica == (1000 + 1500, 160, 0, 0, 2 * 2 * (2 * PART + ROW), 0)


def test_a_group_is_chosen_where_it_pays_and_only_beyond_the_margin() -> None:
    model, topology = toy_model(count=2), toy_machine()
    single = 2 * 4000
    owned = 2 * (2500 + 100 + ROW + 100 + PART)
    replicated = 2 * (2500 + 100 + PART) + 100 + ROW

    def best(margin: float) -> tuple[int, Judged]:
        ask = build_ask(model, context=16, prefill_chunk=1, margin=margin)
        found = BruteForce(model, topology, ask).best()
        assert found is not None
        return found

    assert replicated < owned < single
    least, judged = best(0.0)
    assert (least, judged.value) == (replicated, replicated)
    assert judged.candidate == Candidate((REPLICATED,), (0, 2), (HALVES,), "last", ())
    least, judged = best(0.4)
    assert (least, judged.value) == (replicated, single)
    assert judged.candidate.devices == ("a",)


def test_lineups_of_three_devices_are_as_many_as_counted() -> None:
    model, topology = toy_model(tiles=4, count=3), toy_machine("abc")

    def count(**flags: Any) -> int:
        return len(list(lineups(model, topology, build_ask(model, context=16, **flags))))

    pipelines = 3 + 6 + 6
    pairs = 6 * 2  # ordered by who leads, each mixer
    assert count(tp="off") == pipelines
    assert count(tp=2) == pairs
    assert count(tp=3) == 3 * 2
    assert count() == pipelines + pairs + pairs * 2 + 3 * 2
    assert count(devices=("b", "a")) == 2 + 1 + 2
    assert len(tile_runs(model, (0, 3), 3)) == 3


def everything(oracle: BruteForce, context: int) -> Iterator[Judged]:
    """Every legal shape that fits, each summed by itself."""
    search = Search(oracle, context)
    for lineup in lineups(oracle.model, oracle.topology, oracle.ask):
        count = len(lineup)
        homes_of = product(range(count), repeat=len(oracle.free))
        for head, homes in product(oracle.heads(count), homes_of):
            if not oracle.honours_pins(lineup, head, homes):
                continue
            if is_led_by_name(lineup, homes, oracle.ask):
                for cuts in combinations(oracle.cuts, count - 1):
                    ends = (0, *cuts, len(oracle.model.layers))
                    yield from _of_cuts(search, lineup, ends, head, homes)


def _of_cuts(
    search: Search, lineup: tuple[Group, ...], ends: tuple[int, ...], head: str,
    homes: tuple[int, ...],
) -> Iterator[Judged]:  # fmt: skip
    layers = list(pairwise(ends))
    asked = search.ask.stage_layers
    if asked is not None and tuple(b - a for a, b in layers) != asked:
        return
    sums, hops = search.sums(len(lineup)), search.hops(lineup, head)
    roles = [search.role(lineup, head, homes, stage) for stage in range(len(lineup))]
    deals = [tile_runs(search.oracle.model, span, len(group.devices))
             for group, span in zip(lineup, layers, strict=True)]  # fmt: skip
    for tiles in product(*deals):
        stages = list(zip(lineup, tiles, layers, roles, strict=True))
        times = [sums.compute(*stage) + sums.exchanged(*stage) for stage in stages]
        room = min(sums.budget(name) - sum(sums.columns(*stage, rank))
                   for stage in stages for rank, name in enumerate(stage[0].devices))  # fmt: skip
        if room >= 0:
            shape = Candidate(lineup, ends, tiles, head, homes)
            yield Judged(shape, search.value(lineup, times, hops), room)


@pytest.mark.parametrize("objective", ["latency", "prefill", "throughput"])
def test_nothing_that_is_passed_over_would_have_been_chosen(objective: str) -> None:
    compared = 0
    for seed in range(40):
        question = random_group_question(seed, objective)
        if len(question[1].devices) > 3:
            continue
        oracle, context = BruteForce(*question), question[2].context or 1
        found: dict[tuple[int, bool], Judged] = {}
        for judged in everything(oracle, context):
            if not is_searched(judged.candidate.groups, oracle.ask):
                continue
            kind = judged.candidate.kind
            if kind not in found or judged.order() < found[kind].order():
                found[kind] = judged
        assert Search(oracle, context).by_kind() == found
        compared += bool(found)
    assert compared >= 15


@pytest.mark.parametrize("seed", range(12))
def test_equal_devices_are_worth_what_trying_everything_finds(seed: int) -> None:
    model, topology, ask = random_equal_question(seed)
    model = model.model_copy(update={"layers": model.layers[: 3 + seed % 2]})
    link = topology.links[0]
    few = build_topology(topology.devices[:4], latency_us=link.latency_us or 0.0,
                         gb_s=link.bandwidth_gb_s or 0.0)  # fmt: skip
    found = BruteForce(model, few, ask).best()
    assert EqualDevices(model, few, ask).least_latency() == (found[0] if found else None)
