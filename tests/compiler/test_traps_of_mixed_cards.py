"""Traps of machines with mismatched cards: which of them may, and should, share a layer."""

from itertools import permutations
from typing import Any

import pytest
from plancc_builders import build_device, build_topology, gib
from plancc_cuts import ledgers_of, placed
from plancc_tp_cases import counts_of, cut_model, forms_of, sound_plan

from plancc.ir.errors import BadInput
from plancc.ir.exchange import Exchange
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

SHORT = {"context": 16}


def model(hidden: int = 8192, **fields: Any) -> ModelShape:
    """20 GiB: 40 layers with mixers of 0.05 and MLPs of 0.45 GiB."""
    return cut_model(40, gib(0.05), gib(0.45), hidden, **fields)


def cards(names: str, free: float, *, latency_us: float = 4.0, **fields: Any) -> Topology:
    """Equal cards of 900 GB/s with links of 12 GB/s."""
    devices = [build_device(name, free, gb_s=900.0) for name in names]
    return build_topology(devices, latency_us=latency_us, **fields)


def test_a_slow_third_card_does_not_join_the_fast_pair() -> None:
    """60 GB/s: its smallest share, one tile of 28 MiB, takes it 0.5 ms a layer, half an MLP the
    pair 0.27.
    """
    devices = [build_device(name, 22.0, gb_s=gb_s)
               for name, gb_s in (("A", 900.0), ("B", 60.0), ("C", 900.0))]  # fmt: skip
    best = placed(model(), build_topology(devices, latency_us=3.0), **SHORT)
    assert forms_of(best) == [("replicated", ("A", "C"), (0, 40))]


def test_a_card_in_an_x4_slot_is_not_taken_for_one_in_an_x16_slot() -> None:
    """Four equal cards; C and D have 25 GB/s between them, all other ways go through an x4 slot
    with 6.5 and 9 us. Where two pairs are needed, the others are a pair too.
    """
    slow = {pair: {"bandwidth_gb_s": 6.5, "latency_us": 9.0} for pair in permutations("ABCD", 2)
            if set(pair) != {"C", "D"}}  # fmt: skip
    one = placed(model(), cards("ABCD", 22.0, gb_s=25.0, links=slow), tp=2, **SHORT)
    assert forms_of(one) == [("replicated", ("C", "D"), (0, 40))]
    two = placed(model(), cards("ABCD", 8.0, gb_s=25.0, links=slow), tp=2, **SHORT)
    held = {devices: end - first for _, devices, (first, end) in forms_of(two)}
    assert sorted(held) == [("A", "B"), ("C", "D")]
    assert held["C", "D"] > held["A", "B"]


@pytest.mark.parametrize(("reserve", "counts"), [(0.0, (8, 8)), (3.0, (6, 10))])
def test_memory_reserved_for_a_display_is_nobodys_tile(reserve: float, counts: tuple[int]) -> None:
    """12 GiB free on both. Replicas with halves take 11 each; with 3 reserved A has 9: room for the
    mixers and 6 tiles of 1.125, so B holds no mixers but 10.
    """
    devices = [build_device("A", 12.0, gb_s=900.0, reserve_bytes=gib(reserve)),
               build_device("B", 12.0, gb_s=900.0)]  # fmt: skip
    machine = build_topology(devices, latency_us=4.0)
    best = placed(model(), machine, **SHORT)
    assert counts_of(best) == [counts]
    assert ledgers_of(model(), machine, best, **SHORT)["A"].total <= gib(12.0 - reserve)


def test_a_bridged_pair_is_one_stage_and_the_third_card_another() -> None:
    """B and C: 2 us and 100 GB/s; A hangs on a chipset port, 300 us: it takes the 17 layers, and
    the ends, that the pair has no room for.
    """
    links = {pair: {"latency_us": 2.0, "bandwidth_gb_s": 100.0, "mode": "p2p"}
             for pair in (("B", "C"), ("C", "B"))}  # fmt: skip
    machine = cards("ABC", 12.0, latency_us=300.0, gb_s=3.0, links=links)
    large = cut_model(60, gib(0.05), gib(0.45), 8192, embed=gib(1), head=gib(1))
    plan = sound_plan(large, machine, **SHORT)
    assert [(stage.mixer, len(stage.ranks)) for stage in plan.stages] == [
        ("single", 1), ("replicated", 2)
    ]  # fmt: skip
    assert [rank.device for rank in plan.stages[1].ranks] == ["B", "C"]
    assert plan.stages[0].blocks == ("embed", "head")


def on_hosts(*exchanges: str) -> Topology:
    """A, B, C on three hosts with a network as fast as a bus; who was measured together."""
    devices = [build_device(name, 14.0, gb_s=900.0, host=f"h{i}") for i, name in enumerate("ABC")]
    points = ((4096.0, 10.0), (1e6, 90.0))
    rows = tuple(Exchange(group=tuple(names), points=points) for names in exchanges)
    return build_topology(devices, latency_us=3.0, gb_s=25.0, mode="network", exchanges=rows)


@pytest.mark.parametrize(
    ("measured", "group"), [((), None), (("CB",), ("B", "C")), (("BAC",), ("A", "B", "C"))]
)
def test_hosts_share_a_layer_only_where_just_they_were_measured_together(
    measured: tuple[str, ...], group: tuple[str, ...] | None
) -> None:
    """However fast the links: nothing says that an exchange over them runs at all."""
    best = placed(model(), on_hosts(*measured), **SHORT)
    groups = [devices for _, devices, _ in forms_of(best) if len(devices) > 1]
    assert groups == ([] if group is None else [group])


def test_an_exchange_of_three_hosts_does_not_vouch_for_two() -> None:
    best = placed(model(), on_hosts("BAC"), max_devices=2, **SHORT)
    assert {mixer for mixer, _, _ in forms_of(best)} == {"single"}
    with pytest.raises(BadInput, match="no 2 devices may form a group"):
        placed(model(), on_hosts("BAC"), tp=2, **SHORT)


def test_a_card_without_the_dtype_is_in_no_group() -> None:
    """The fastest of three has no bfloat16: the other two are the group; asked for, it is named."""
    devices = [build_device("A", 30.0, gb_s=900.0, dtypes=("float16", "float32")),
               *(build_device(name, 30.0, gb_s=600.0) for name in "BC")]  # fmt: skip
    machine = build_topology(devices, latency_us=4.0)
    assert forms_of(placed(model(), machine, **SHORT)) == [("replicated", ("B", "C"), (0, 40))]
    with pytest.raises(BadInput, match="device A: toy is bfloat16"):
        placed(model(), machine, tp=2, devices=("A", "B"), **SHORT)


@pytest.mark.parametrize(("free", "mixer"), [(1.0, "single"), (2.5, "owned")])
def test_a_card_without_room_for_one_tile_does_not_join(free: float, mixer: str) -> None:
    """A tile of 40 layers is 1.125 GiB: B with 1.0 cannot help A, with 2.5 it reads 2 tiles."""
    devices = [build_device("A", 20.5, gb_s=900.0), build_device("B", free, gb_s=900.0)]
    best = placed(model(), build_topology(devices, latency_us=1.0), **SHORT)
    assert [name for name, _, _ in forms_of(best)] == [mixer]


def test_the_asked_limit_counts_cards_and_the_asked_cuts_count_stages() -> None:
    machine = cards("ABCD", 14.0)
    assert forms_of(placed(model(), machine, max_devices=2, **SHORT)) == [
        ("replicated", ("A", "B"), (0, 40))
    ]
    cut = placed(model(), machine, stage_layers=(15, 25), tp=2, **SHORT)
    assert forms_of(cut) == [
        ("replicated", ("A", "B"), (0, 15)), ("replicated", ("C", "D"), (15, 40))
    ]  # fmt: skip


def test_a_card_asked_for_twice_makes_a_pipeline_and_no_group() -> None:
    """Its seats share one budget and one reader: cutting an MLP between them gains nothing."""
    best = placed(model(), cards("AB", 30.0), devices=("A", "A", "B"), **SHORT)
    assert [devices for _, devices, _ in forms_of(best)] == [("A",), ("A",), ("B",)]


@pytest.mark.parametrize(("context", "mixer"), [(16384, "replicated"), (40960, "owned")])
def test_long_contexts_are_kept_once(context: int, mixer: str) -> None:
    """4 KiB of KV a token in 40 layers: 2.5 GiB at 16384, and twice that fits beside 20 GiB in two
    cards of 14. At 40960 it is 6.25, and 22 + 12.5 do not.
    """
    best = placed(model(4096, kv=4096), cards("AB", 14.0), context=context)
    assert [name for name, _, _ in forms_of(best)] == [mixer]
    kv = ledgers_of(model(4096, kv=4096), cards("AB", 14.0), best, context=context)
    assert sum(row.kv for row in kv.values()) == (
        context * 4096 * 40 * (2 if mixer == "replicated" else 1)
    )
