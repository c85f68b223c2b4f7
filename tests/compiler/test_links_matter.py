"""One measured number changes, of a link, an exchange or a trunk, and the placement with it."""

from typing import Any

from plancc_builders import MIB, build_device, build_layer, build_model, build_topology, gib
from plancc_one_number import both, with_exchange, with_link
from plancc_tp_cases import counts_of, cut_bytes, cut_model, forms_of

from plancc.compiler.placement.placement import Placement
from plancc.ir.exchange import Exchange
from plancc.ir.topology import Topology

SHORT = {"context": 16}


def cards(names: str, free: float, *, latency_us: float = 3.0, **fields: Any) -> Topology:
    """Equal cards of 900 GB/s with links of 12 GB/s."""
    devices = [build_device(name, free, gb_s=900.0) for name in names]
    return build_topology(devices, latency_us=latency_us, **fields)


def whole_layers(count: int, size: float, hidden: int = 4096, **fields: Any) -> Any:
    """Layers that nothing but a pipeline can spread."""
    return build_model([build_layer(gib(size), **fields)] * count, hidden_size=hidden)


def mixers_of(*placements: Placement) -> list[list[str]]:
    return [[mixer for mixer, _, _ in forms_of(placement)] for placement in placements]


def devices_of(placement: Placement) -> list[tuple[str, ...]]:
    return [devices for _, devices, _ in forms_of(placement)]


def test_a_slow_link_one_way_ends_a_group() -> None:
    """A -> B from 3 to 150 us. Half of each MLP saves 48 us; an exchange waits for its slowest
    transfer, and an owner needs both ways.
    """
    machine = cards("AB", 8.0)
    group, alone = both(cut_bytes(32, 0.1, 0.8, 4096), machine,
                        with_link(machine, "A", "B", latency_us=150.0))  # fmt: skip
    assert mixers_of(group, alone) == [["replicated"], ["single"]]


def test_a_slow_link_is_left_out_of_a_pipeline_of_two_of_three() -> None:
    """A -> B from 20 to 60 us: with equal cards the pair by name is A, B, until C is nearer."""
    machine = cards("ABC", 3.5, latency_us=20.0)
    before, after = both(whole_layers(30, 0.2), machine,
                         with_link(machine, "A", "B", latency_us=60.0))  # fmt: skip
    assert devices_of(before) == [("A",), ("B",)]
    assert devices_of(after) == [("A",), ("C",)]


def test_a_narrow_link_turns_the_order_of_a_pipeline_round() -> None:
    """A -> B from 12 to 0.05 GB/s: the rows of a chunk, 4 MiB, would take longer than the stage
    that computes them; backwards only tokens go.
    """
    rates = {"tflops": {"bfloat16": 60.0}}
    machine = build_topology([build_device(name, 3.5, **rates) for name in "AB"])
    before, after = both(whole_layers(30, 0.2), machine,
                         with_link(machine, "A", "B", bandwidth_gb_s=0.05),
                         objective="prefill")  # fmt: skip
    assert devices_of(before) == [("A",), ("B",)]
    assert devices_of(after) == [("B",), ("A",)]


def test_a_narrow_link_makes_one_card_do_what_two_did() -> None:
    """A -> B from 12 to 0.05 GB/s: 64 streams of 4096 tokens read 8 GiB of KV, on two cards in half
    the time; 32 rows of 16 KiB over the narrow link take 10 ms, more than that saves.
    """
    devices = [build_device(name, 12.0) for name in "AB"]
    machine = build_topology(devices, links={("B", "A"): {"bandwidth_gb_s": 0.05}})
    before, after = both(whole_layers(30, 0.05, 8192, kv=1024), machine,
                         with_link(machine, "A", "B", bandwidth_gb_s=0.05),
                         objective="throughput", slots=64, context=4096, tp="off")  # fmt: skip
    assert (len(before.stages), len(after.stages)) == (2, 1)


def test_a_slow_link_in_one_of_two_groups_moves_the_cut_towards_it() -> None:
    """A -> B from 3 to 60 us: layers on {A, B} become dearer than on {C, D}, which then takes all
    that it can hold: 28 of 40.
    """
    homes = {"A": "h0", "B": "h0", "C": "h1", "D": "h1"}
    devices = [build_device(name, 8.0, gb_s=900.0, host=host) for name, host in homes.items()]
    machine = build_topology(devices, latency_us=20.0,
                             links={("A", "B"): {"latency_us": 3.0}})  # fmt: skip
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_link(machine, "A", "B", latency_us=60.0), tp=2, **SHORT)  # fmt: skip
    assert [stage.layers for stage in before.stages] == [(0, 20), (20, 40)]
    assert [stage.layers for stage in after.stages] == [(0, 12), (12, 40)]


def test_a_slow_link_in_a_group_of_three_gives_the_mixers_to_who_does_not_need_it() -> None:
    """C -> A from 3 to 100 us: replicas use every link, B as the owner none between A and C."""
    machine = cards("ABC", 18.0)
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_link(machine, "C", "A", latency_us=100.0), **SHORT)  # fmt: skip
    assert forms_of(before) == [("replicated", ("A", "B", "C"), (0, 40))]
    assert forms_of(after) == [("owned", ("B", "A", "C"), (0, 40))]


def test_one_point_of_a_links_curve_decides_who_owns() -> None:
    """B -> A at 64 KiB from 8 to 300 us: fp32 partial rows of 16 KiB would cross it to an owner A;
    to an owner B they go the other way, and only normed rows of 8 KiB cross it.
    """
    points = ((1024.0, 4.0), (65536.0, 8.0), (1e6, 400.0))
    machine = cards("AB", 18.0, links={("B", "A"): {"points": points}})
    slow = (points[0], (65536.0, 300.0), points[2])
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_link(machine, "B", "A", points=slow), **SHORT)  # fmt: skip
    assert mixers_of(before, after) == [["replicated"], ["owned"]]
    assert devices_of(after) == [("B", "A")]


def test_a_narrow_way_back_evens_the_shares() -> None:
    """B -> A from 100 to 2 GB/s: 7 tiles of 16 are three partial rows of 64 KiB, 8 are one. Two
    rows less save 66 us a layer, more than the 40 that B, the slower card, takes for a tile.
    """
    devices = [build_device("A", 22.0, gb_s=936.0), build_device("B", 22.0, gb_s=700.0)]
    machine = build_topology(devices, latency_us=3.0, gb_s=100.0)
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 16384), machine,
                         with_link(machine, "B", "A", bandwidth_gb_s=2.0), devices=("A", "B"),
                         **SHORT)  # fmt: skip
    assert mixers_of(before, after) == [["owned"], ["owned"]]
    assert (counts_of(before), counts_of(after)) == ([(9, 7)], [(8, 8)])


def test_a_narrow_way_back_moves_the_head_to_the_last_stage() -> None:
    """B -> A from 12 to 0.05 GB/s: with the head first, on the faster card, a hidden row of 16 KiB
    comes back in every step, and takes 0.3 ms; with the head last only a token does.
    """
    devices = [build_device("A", 3.7, gb_s=936.0), build_device("B", 6.0, gb_s=300.0)]
    machine = build_topology(devices)
    model = build_model([build_layer(gib(0.2))] * 30, hidden_size=8192, embed=gib(0.3),
                        head=gib(0.3))  # fmt: skip
    before, after = both(model, machine, with_link(machine, "B", "A", bandwidth_gb_s=0.05),
                         devices=("A", "B"), margin=0, **SHORT)  # fmt: skip
    assert (before.head_stage, after.head_stage) == (0, 1)
    assert [stage.layers for stage in before.stages] != [stage.layers for stage in after.stages]


def with_measured(latency_us: float, *points: tuple[float, float], hosts: str = "00") -> Topology:
    devices = [build_device(name, 18.0, gb_s=936.0, host=f"h{host}")
               for name, host in zip("AB", hosts, strict=True)]  # fmt: skip
    return build_topology(devices, latency_us=latency_us,
                          exchanges=(Exchange(group=("A", "B"), points=points),))  # fmt: skip


def test_one_point_of_an_exchange_decides_between_replicas_and_an_owner() -> None:
    """At 4 KiB from 6 to 90 us: an owner sends over the links, whose curves did not change."""
    machine = with_measured(3.0, (4096, 6.0), (MIB, 106.0))
    before, after = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                         with_exchange(machine, (4096, 90.0), (MIB, 106.0)), **SHORT)  # fmt: skip
    assert mixers_of(before, after) == [["replicated"], ["owned"]]


def test_one_point_of_an_exchange_decides_between_a_group_and_a_pipeline() -> None:
    """Across hosts, at 4 KiB from 12 to 900 us; links of 400 us leave an owner no hope either."""
    machine = with_measured(400.0, (4096, 12.0), (MIB, 1012.0), hosts="01")
    group, pipeline = both(cut_model(40, gib(0.05), gib(0.45), 4096), machine,
                           with_exchange(machine, (4096, 900.0), (MIB, 1012.0)),
                           **SHORT)  # fmt: skip
    assert mixers_of(group, pipeline) == [["replicated"], ["single", "single"]]


def test_a_riser_that_both_ways_share_gives_the_mixers_to_one_card() -> None:
    """B -> A joins trunk "riser", where A -> B is: replicas send both ways at once, 2 x 64 KiB at 3
    GB/s; an owner sends rows out and gets partial rows back one after the other.
    """
    devices = [build_device(name, 22.0, gb_s=936.0) for name in "AB"]
    machine = build_topology(devices, latency_us=5.0, gb_s=3.0,
                             links={("A", "B"): {"trunk": "riser"}})  # fmt: skip
    before, after = both(cut_model(40, gib(0.01), gib(0.45), 16384), machine,
                         with_link(machine, "B", "A", trunk="riser"), **SHORT)  # fmt: skip
    assert mixers_of(before, after) == [["replicated"], ["owned"]]


def test_a_trunk_that_two_ways_into_the_owner_share_makes_another_own() -> None:
    """d2 -> d0 joins trunk "up0", where d1 -> d0 is: their partial rows add up, those to d1 do not.
    Replicas do not fit: 9 GiB a card, 4 of mixers, 16 of MLPs.
    """
    devices = [build_device(f"d{i}", 9.0, gb_s=900.0) for i in range(3)]
    links = {("d1", "d0"): {"trunk": "up0"}, ("d2", "d0"): {"trunk": "up1"}}
    machine = build_topology(devices, latency_us=2.0, gb_s=6.0, links=links)
    before, after = both(cut_model(40, gib(0.1), gib(0.4), 8192), machine,
                         with_link(machine, "d2", "d0", trunk="up0"), **SHORT)  # fmt: skip
    assert mixers_of(before, after) == [["owned"], ["owned"]]
    assert (before.stages[0].devices[0], after.stages[0].devices[0]) == ("d0", "d1")
