"""Situations from the field, with their numbers: who wins where TP groups may be formed."""

from typing import Any

import pytest
from plancc_bruteforce import BruteForce, Candidate
from plancc_bruteforce_bytes import Group
from plancc_builders import build_ask, build_device, build_topology, gib
from plancc_cuts import ledgers_of, placed
from plancc_shape_words import value_of
from plancc_tp_cases import counts_of, cut_bytes, forms_of, sound_plan, values_of

from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

SMALL = 8
MS = 1e6  # ns


def two(a: float, b: float, **fields: Any) -> Topology:
    """A and B with 0.8 GiB of overhead, 500 GB/s, 20 us and 12 GB/s between them."""
    devices = [
        build_device(name, free, overhead_bytes=gib(0.8)) for name, free in (("A", a), ("B", b))
    ]
    return build_topology(devices, **fields)


def large_and_small() -> tuple[ModelShape, Topology]:
    ends = {"embed": gib(0.244), "head": gib(0.244)}
    return cut_bytes(32, 0.406, 0.8, SMALL, kv=4096, **ends), two(23.3, 7.4)


def test_a_small_card_lends_its_rate_where_equal_shares_would_not_fit_it() -> None:
    """C15 (a): 13.98 GiB run on A alone in 29.5 ms. Groups of replicas with halves lack room on B;
    with the mixers on A, B holds 8 tiles of 0.65 GiB, and a step takes 19.6 ms.
    """
    model, machine = large_and_small()
    best = placed(model, machine, context=4096)
    assert forms_of(best) == [("owned", ("A", "B"), (0, 32))]
    values = values_of(best)
    assert values["one device"] / MS == pytest.approx(29.5, abs=0.1)
    assert best.proof.value / MS == pytest.approx(19.6, abs=0.1)
    used = ledgers_of(model, machine, best, context=4096)
    assert used["B"].total <= gib(7.4) < used["B"].total + used["A"].weights - used["B"].weights


def test_a_small_card_stays_closed_where_its_link_is_slow() -> None:
    """C15 (a): two latencies of 200 us in each of 32 layers cost more than B saves."""
    model, machine = large_and_small()[0], two(23.3, 7.4, latency_us=200.0)
    assert forms_of(placed(model, machine, context=4096)) == [("single", ("A",), (0, 32))]


def test_a_group_holds_what_leaves_a_pipeline_two_cuts() -> None:
    """C15 (b): 22 + 9 GiB, cuts 30 and 31 at 512 tokens, 57 ms; mixers on A and 10 + 6 tiles, 43.

    At 2009 tokens, the last that a pipeline with its head last holds, no group of sixteenths fits.
    """
    ends = {"embed": gib(1.45), "head": gib(1.45)}
    model = cut_bytes(40, 0.62, 0.8, SMALL, kv=20480, **ends)
    best = placed(model, two(22.0, 9.0), context=512)
    assert forms_of(best) == [("owned", ("A", "B"), (0, 40))]
    assert counts_of(best) == [(10, 6)]
    assert best.proof.value < 0.8 * values_of(best)["pipeline of 2 stages"]
    longest = placed(model, two(22.0, 9.0), context=2009)
    assert [mixer for mixer, _, _ in forms_of(longest)] == ["single", "single"]


def test_the_largest_context_is_a_pipelines_where_replicas_would_keep_it_twice() -> None:
    """C15 (c): 9 | 19 layers keep KV on both cards, 23 and 46 GiB. A group keeps it twice, or all
    of it on its owner, and is only there where it is asked for.
    """
    ends = {"embed": gib(0.44), "head": gib(0.44)}
    model = cut_bytes(28, 0.1, 0.8, SMALL, kv=1024, **ends)
    model = model.model_copy(update={"max_context": 10_000_000})
    machine = two(23.0, 46.0)
    best = placed(model, machine, objective="context")
    assert forms_of(best) == [("single", ("A",), (0, 9)), ("single", ("B",), (9, 28))]
    grouped = placed(model, machine, objective="context", tp=2)
    assert grouped.context < 0.8 * best.context


def fast_and_slow(latency_us: float) -> tuple[ModelShape, Topology]:
    rates = {"A": (22.5, 936.0), "B": (23.0, 346.0)}
    devices = [build_device(name, free, gb_s=gb_s, overhead_bytes=gib(0.8))
               for name, (free, gb_s) in rates.items()]  # fmt: skip
    model = cut_bytes(60, 0.5, 0.8, 8192, embed=gib(0.5), head=gib(0.5))
    return model, build_topology(devices, latency_us=latency_us, gb_s=12.0)


def test_the_fast_card_takes_more_tiles_not_only_more_layers() -> None:
    """C16: 42 | 18 layers take 52.6 ms; 9 + 7 tiles with the mixers on the fast one 43.0. Room, not
    rates, keeps the slow card at 7: A has 21.7 GiB, with mixers and ends 7, and 1.5 a tile.
    """
    model, machine = fast_and_slow(20.0)
    best = placed(model, machine)
    assert forms_of(best) == [("owned", ("A", "B"), (0, 60))]
    assert counts_of(best) == [(9, 7)]
    assert best.proof.value / MS == pytest.approx(43.0, abs=0.5)
    assert values_of(best)["pipeline of 2 stages"] / MS == pytest.approx(52.6, abs=0.5)


def test_over_a_slow_link_the_fast_card_takes_more_layers() -> None:
    """C16: 150 us a transfer, 120 transfers a step: 18 ms, more than the group saves."""
    best = placed(*fast_and_slow(150.0))
    assert sorted(end - first for _, _, (first, end) in forms_of(best)) == [18, 42]
    assert {mixer for mixer, _, _ in forms_of(best)} == {"single"}


def small_on_three() -> tuple[ModelShape, Topology]:
    devices = [build_device(name, 22.0, gb_s=1008.0) for name in "ABC"]
    model = cut_bytes(32, 3.9 / 32, 0.66, 4096)
    return model, build_topology(devices, latency_us=200.0, gb_s=6.0)


def test_no_group_pays_over_links_of_200_us() -> None:
    """C17 (a): one device 4.15 ms, three in a pipeline about 4.55, in a group 8.7 or 15.1."""
    model, machine = small_on_three()
    best = placed(model, machine)
    assert forms_of(best) == [("single", ("A",), (0, 32))]
    assert best.proof.value / MS == pytest.approx(4.15, abs=0.01)
    assert values_of(best)["pipeline of 3 stages"] / MS == pytest.approx(4.55, rel=0.15)
    asked = placed(model, machine, tp=3)
    assert [mixer for mixer, _, _ in forms_of(asked)] == ["replicated"]
    assert asked.proof.value / MS == pytest.approx(8.7, rel=0.15)
    owned = Candidate((Group(("A", "B", "C"), "owned"),), (0, 32),
                      (((0, 4), (4, 10), (10, 16)),), "last", ())  # fmt: skip
    oracle = BruteForce(model, machine, build_ask(model, tp=3))
    assert value_of(oracle, owned) / MS == pytest.approx(15.1, rel=0.15)


def large_on_two() -> tuple[ModelShape, Topology]:
    """A chunk of 2048 rows takes one device-equivalent 1.96 s: 88 TFLOP at 44.9 TFLOP/s."""
    rates = {"gb_s": 936.0, "tflops": {"bfloat16": 44.88}}
    devices = [build_device(name, 22.5, **rates) for name in "AB"]
    model = cut_bytes(80, 0.5, 0.81, 8192, inner=28672)
    return model, build_topology(devices, latency_us=30.0, gb_s=3.0)


def test_decode_wants_a_group_where_replicas_do_not_fit() -> None:
    """C17 (b): about 35 ms, owned with unequal shares, against 46 in a pipeline."""
    model, machine = large_on_two()
    plan = sound_plan(model, machine)
    (stage,) = plan.stages
    assert stage.mixer == "owned"
    widths = [end - first for first, end in (rank.mlp_tiles for rank in stage.ranks)]
    assert widths[0] < widths[1]
    assert plan.predicted.decode.step_ns / MS == pytest.approx(35, rel=0.15)
    assert values_of(plan)["pipeline of 2 stages"] / MS == pytest.approx(46, rel=0.02)
    assert (plan.ask.objective, plan.provenance.solver.objective) == ("latency", "latency")


def test_replicas_of_that_model_lack_room_whatever_the_shares() -> None:
    """C17 (b): 7.6 GiB of mixers twice and 32.4 of MLPs are 47.6 of 45 GiB."""
    assert 2 * 0.19 * 40 + 0.81 * 40 > 2 * 22.5
    model, machine = large_on_two()
    assert {mixer for mixer, _, _ in forms_of(placed(model, machine, tp=2))} == {"owned"}


@pytest.mark.parametrize(("prompt", "ms"), [(2048, 1960), (65536, 33 * 980)])
def test_prefill_over_a_slow_link_wants_a_pipeline(prompt: int, ms: float) -> None:
    """C17 (b): hidden rows of a chunk are 34 MB, 11 ms a layer; a group sends them 80 times, back
    as twice as many bytes. One chunk takes 1.96 s in a pipeline, each of many 0.98.
    """
    model, machine = large_on_two()
    asked = {"objective": "prefill", "prefill_chunk": 2048, "prompt": prompt, "context": prompt}
    best = placed(model, machine, **asked)
    assert [mixer for mixer, _, _ in forms_of(best)] == ["single", "single"]
    assert best.proof.value / MS == pytest.approx(ms, rel=0.02)
    group = Candidate((Group(("A", "B"), "owned"),), (0, 80), (((0, 7), (7, 16)),), "last", ())
    value = value_of(BruteForce(model, machine, build_ask(model, **asked)), group)
    assert value / best.proof.value > 1.5


def test_rejected_shapes_are_named_as_what_they_are() -> None:
    """C17 (a): one device is not tensor parallelism over 1, nor two in a row a group."""
    model, machine = small_on_three()
    found = values_of(placed(model, machine))
    assert "MLP tensor parallelism over 1" not in found
    groups = {name: value for name, value in found.items() if "MLP tensor" in name}
    assert not set(groups.values()) & {found["one device"], found["pipeline of 2 stages"]}
