"""What would change a plan: moves and changed numbers, against compiling each of them anew."""

import os
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from plancc_builders import build_device, build_layer, build_model, build_topology
from plancc_examples import KIB, three_devices, tiny_ask, tiny_manifest

from plancc.compiler.api import compile
from plancc.compiler.cost.predict import predict
from plancc.compiler.explain import explain
from plancc.compiler.explain_changed import changed
from plancc.compiler.explain_moves import moves_of
from plancc.compiler.explain_price import placement_of
from plancc.compiler.explain_sensitivity import (
    MOST_SLOW_SOLVES,
    SLOWEST,
    Effect,
    Sensitivity,
    sensitivity,
)
from plancc.compiler.explain_variants import Part, Variant, most_promising, variants
from plancc.compiler.placement.placement import Placement
from plancc.ir.ask import Ask
from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

OFF = {"tp": "off", "margin": 0.0}


def tiny(topology: Topology, **flags: Any) -> Plan:
    return compile(tiny_manifest(), topology, tiny_ask(**(OFF | flags)))


def answer_of(plan: Plan, topology: Topology) -> Sensitivity:
    return sensitivity(plan, topology)


def edited(topology: Topology, name: str, **fields: Any) -> Topology:
    rows = tuple(device.model_copy(update=fields) if device.name == name else device
                 for device in topology.devices)  # fmt: skip
    return topology.model_copy(update={"devices": rows})


def effect(answer: Sensitivity, change: str) -> Effect:
    return next(row for row in answer.effects if row.change == change)


def stages(plan: Plan) -> list[tuple[str, tuple[int, int]]]:
    return [(stage.ranks[0].device, stage.layers) for stage in plan.stages]


def roomy() -> Topology:
    """Room for every cut, so that every move has a price; unequal reads."""
    return build_topology(
        [build_device("d0", 900 * KIB + 900 * KIB, gb_s=8.0, launch_us=2.0),
         build_device("d1", 1800 * KIB, gb_s=5.0, launch_us=2.0)],
        name="roomy",
    )  # fmt: skip


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_moved_layer_costs_what_compiling_that_cut_says(objective: str) -> None:
    flags: dict[str, Any] = {"devices": ("d0", "d1"), "head": "last", "objective": objective,
                             "slots": 2}  # fmt: skip
    plan = tiny(roomy(), stage_layers=(3, 3), **flags)
    found = moves_of(plan, roomy())
    assert [(move.layers, move.source, move.target) for move in found] == [
        ((2, 3), "d0", "d1"), ((3, 4), "d1", "d0")
    ]  # fmt: skip
    for move, cut in zip(found, ((2, 4), (4, 2)), strict=True):
        other = tiny(roomy(), stage_layers=cut, **flags)
        assert move.delta_ns == other.provenance.solver.value - plan.provenance.solver.value != 0


def test_a_move_that_does_not_fit_says_where_and_how_many_bytes() -> None:
    topology = three_devices()
    plan = tiny(topology, devices=("d0", "d1"), stage_layers=(3, 3), head="last")
    failed = [move for move in moves_of(plan, topology) if move.delta_ns is None]
    assert failed
    for move in failed:
        cut = (2, 4) if move.target == "d1" else (4, 2)
        with pytest.raises(DoesNotFit) as refusal:
            tiny(topology, devices=("d0", "d1"), stage_layers=cut, head="last")
        report: Any = refusal.value.report
        worst = max(report["devices"], key=lambda row: row["short_bytes"])
        assert (move.device, move.short_bytes) == (worst["device"], worst["short_bytes"])


def test_a_stage_of_one_layer_gives_none_away() -> None:
    plan = tiny(roomy(), devices=("d0", "d1"), stage_layers=(1, 5), head="last")
    assert [move.source for move in moves_of(plan, roomy())] == ["d1"]


@pytest.mark.parametrize(
    ("change", "name", "fields"),
    [
        ("read rate of d0 +10 %", "d0", {"read_gb_s": 8.8}),
        ("read rate of d0 -10 %", "d0", {"read_gb_s": 7.2}),
        ("read rate of d1 -10 %", "d1", {"read_gb_s": 4.5}),
        ("read rate of d2 +10 %", "d2", {"read_gb_s": 1.1}),
        ("memory of d0 +1 GiB", "d0",
         {"free_bytes": 1004 * KIB + 2**30, "total_bytes": 1004 * KIB + 2**30}),
        ("memory of d1 +1 GiB", "d1",
         {"free_bytes": 964 * KIB + 2**30, "total_bytes": 964 * KIB + 2**30}),
    ],
)  # fmt: skip
def test_a_changed_number_gives_what_compiling_with_it_gives(
    change: str, name: str, fields: dict[str, Any]
) -> None:
    topology = three_devices()
    plan = tiny(topology)
    row = effect(answer_of(plan, topology), change)
    other = tiny(edited(topology, name, **fields))
    assert row.value is not None
    assert (
        abs(row.value - other.provenance.solver.value) <= 1e-6 * row.value
    )  # 8.0 * 1.1 is not 8.8
    assert (row.flips_to is not None) == (stages(other) != stages(plan))


@pytest.mark.parametrize(("change", "flags"), [("context x 2", {"context": 128, "prompt": 64}),
                                               ("slots x 2", {"slots": 2})])  # fmt: skip
def test_twice_the_context_or_slots_gives_what_compiling_gives(
    change: str, flags: dict[str, Any]
) -> None:
    topology = three_devices()
    plan = tiny(topology)
    row = effect(answer_of(plan, topology), change)
    other = tiny(topology, **flags)
    assert row.value == other.provenance.solver.value
    assert (row.flips_to is not None) == (stages(other) != stages(plan))


def test_this_plan_is_priced_as_it_is_or_said_not_to_fit() -> None:
    """With a slower d0 the plan keeps its cut and pays; with eight times the slots d0 is full."""
    topology = three_devices()
    plan = tiny(topology)
    row = effect(answer_of(plan, topology), "read rate of d0 -10 %")
    cuts = tuple(end - first for _, (first, end) in stages(plan))
    kept = tiny(edited(topology, "d0", read_gb_s=8.0 * 0.9), stage_layers=cuts,
                devices=tuple(name for name, _ in stages(plan)))  # fmt: skip
    assert row.kept_value == kept.provenance.solver.value
    assert row.value is not None
    assert row.kept_value >= row.value


def test_what_does_not_fit_comes_first_with_the_bytes_that_lack() -> None:
    wide = tiny(build_topology([build_device("d0", 4000 * KIB)]), slots=2)
    free = wide.devices[0].ledger.total
    topology = build_topology([build_device("d0", free, gb_s=8.0)], name="one")
    first = answer_of(tiny(topology, slots=2), topology).effects[0]
    assert first.value is None
    assert first.kept_value is None
    assert first.device == "d0"
    assert first.short_bytes is not None
    assert first.short_bytes > 0


def test_effects_come_in_order_of_size() -> None:
    topology = three_devices()
    answer = answer_of(tiny(topology), topology)
    sizes = [float("inf") if row.value is None else abs(row.value - answer.value)
             for row in answer.effects]  # fmt: skip
    assert all(one >= two for one, two in pairwise(sizes))
    assert len({row.change for row in answer.effects}) == len(answer.effects)


def equal_cards(count: int) -> Topology:
    rows = [build_device(f"g{i}", 1300 * KIB, gb_s=8.0, launch_us=2.0) for i in range(count)]
    return build_topology(rows, name="equal")


def test_devices_that_may_change_places_are_tried_once_and_equal_links_together() -> None:
    topology = equal_cards(6)
    words = [variant.words for variant in variants(tiny(topology), topology)]
    assert words == [
        "read rate of g0 (or 5 like it) +10 %", "read rate of g0 (or 5 like it) -10 %",
        "link g0->g1 and 29 like it +10 %", "link g0->g1 and 29 like it -10 %",
        "memory of g0 (or 5 like it) +1 GiB",
        "context x 2", "slots x 2",
    ]  # fmt: skip


def test_which_of_the_equal_devices_changes_does_not_matter() -> None:
    topology = equal_cards(3)
    slower = [tiny(edited(topology, name, read_gb_s=7.2)).provenance.solver.value
              for name in ("g0", "g1", "g2")]  # fmt: skip
    assert len(set(slower)) == 1


def test_what_no_stage_uses_is_not_made_worse() -> None:
    topology = three_devices()
    words = [variant.words for variant in variants(tiny(topology), topology)]
    assert "read rate of d2 +10 %" in words
    assert "read rate of d2 -10 %" not in words


def test_a_context_beyond_the_model_is_not_tried_and_said_so() -> None:
    topology = three_devices()
    plan = tiny(topology, context=200, prompt=64)
    answer = answer_of(plan, topology)
    assert "context x 2" not in [row.change for row in answer.effects]
    assert "context x 2 not tried: the model ends before" in answer.notes


def test_a_faster_link_shrinks_its_whole_curve() -> None:
    """Latency and time of a byte alike, in the direction that was measured."""
    topology = three_devices(links={("d0", "d1"): {"points": ((64, 10.0), (1024, 20.0))}})
    ask, model = tiny_ask().filled(256, "float32"), tiny_manifest().shape()
    for pair in (("d0", "d1"), ("d1", "d2")):
        part = Part("link", (f"{pair[0]}->{pair[1]}",), "link")
        found = changed(topology, ask, model, Variant(part, 2.0))
        assert found is not None
        old, new = topology.link(*pair), found[0].link(*pair)
        assert old is not None
        assert new is not None
        for size in (1, 64, 500, 10**6):
            assert new.curve().us(size) == pytest.approx(old.curve().us(size) / 2)
        assert found[0].link(pair[1], pair[0]) == topology.link(pair[1], pair[0])


def test_thresholds_lie_between_a_factor_that_keeps_the_plan_and_one_that_flips_it() -> None:
    """d1 and d2 hold the rest equally well; d1 is faster until it is slowed to d2's rate."""
    rows = [build_device("d0", 1100 * KIB, gb_s=8.0, launch_us=2.0),
            build_device("d1", 1300 * KIB, gb_s=5.0, launch_us=2.0),
            build_device("d2", 1300 * KIB, gb_s=3.0, launch_us=2.0)]  # fmt: skip
    topology = build_topology(rows, name="rivals")
    plan = tiny(topology)
    assert [name for name, _ in stages(plan)] == ["d1", "d0"]
    found = {row.what: row.factor for row in answer_of(plan, topology).thresholds}
    factor = next(value for what, value in found.items() if "read rate" in what)
    name = next(what for what in found if "read rate" in what).split()[-1]
    assert factor is not None
    rate = {"d0": 8.0, "d1": 5.0}[name]
    near = tiny(edited(topology, name, read_gb_s=rate * (factor - 0.05)))
    far = tiny(edited(topology, name, read_gb_s=rate * (factor + 0.05)))
    assert stages(near) != stages(plan)
    assert stages(far) == stages(plan)


def test_a_plan_that_nothing_can_replace_stays_at_the_slowest() -> None:
    topology = build_topology([build_device("d0", 4000 * KIB, gb_s=8.0)], name="one")
    answer = answer_of(tiny(topology), topology)
    assert [(row.what, row.factor) for row in answer.thresholds] == [("read rate of d0", None)]
    assert SLOWEST == 0.25


def test_a_plan_that_was_edited_is_said_to_be_no_longer_what_is_chosen() -> None:
    topology = roomy()
    plan = tiny(topology, devices=("d0", "d1"), stage_layers=(2, 4))
    answer = answer_of(plan.model_copy(update={"ask": plan.ask.model_copy(
        update={"stage_layers": None, "devices": None})}), topology)  # fmt: skip
    assert any("the unchanged question gives another shape" in note for note in answer.notes)


def test_quick_moves_layers_and_solves_nothing() -> None:
    answer = sensitivity(tiny(three_devices()), three_devices(), is_quick=True)
    assert answer.moves
    assert (answer.effects, answer.thresholds) == ((), ())
    assert answer.notes == ("solves left out: --quick",)


def test_progress_ends_where_it_said_it_would() -> None:
    heard: list[tuple[int, int]] = []
    sensitivity(tiny(three_devices()), three_devices(),
                progress=lambda done, of: heard.append((done, of)))  # fmt: skip
    assert heard[-1][0] == heard[-1][1]
    assert all(one[0] <= two[0] <= two[1] for one, two in pairwise(heard))


def test_the_same_question_gives_the_same_answer() -> None:
    topology = three_devices()
    plan = tiny(topology)
    assert answer_of(plan, topology) == answer_of(plan, topology)


def test_a_model_in_bytes_and_the_context_objective_are_explained_too() -> None:
    model = build_model([build_layer(200 * KIB, kv=64)] * 6, embed=100 * KIB, head=100 * KIB)
    topology = build_topology([build_device("a", 900 * KIB), build_device("b", 1000 * KIB)])
    manifest = ModelManifest(**{name: getattr(model, name) for name in type(model).model_fields})
    plan = compile(manifest, topology, Ask(objective="context", prefill_chunk=16, tp="off"))
    answer = answer_of(plan, topology)
    bigger = effect(answer, "memory of a +1 GiB")
    assert bigger.context is not None
    assert bigger.context > plan.runtime.context
    assert explain(plan).reasons


def linked(latency_us: float, free: int = 1300, **flags: Any) -> tuple[Topology, Plan]:
    """Three devices that share every layer while exchanges are fast enough."""
    rows = [build_device(f"d{i}", free * KIB, gb_s=rate, launch_us=0.1)
            for i, rate in enumerate((8.0, 5.0, 8.0))]  # fmt: skip
    topology = build_topology(rows, latency_us=latency_us, gb_s=100.0, name="fast")
    return topology, compile(tiny_manifest(), topology, tiny_ask(margin=0.0, **flags))


def test_a_slower_link_turns_a_group_into_a_pipeline_at_the_threshold_that_is_said() -> None:
    topology, plan = linked(10.0)
    assert [len(stage.ranks) for stage in plan.stages] == [3]
    found = {row.what: row.factor for row in answer_of(plan, topology).thresholds}
    factor = found["link d0->d1 and 5 like it"]
    assert factor is not None
    assert 0.25 < factor < 1
    near = linked(10.0 / (factor + 0.03))[1]
    far = linked(10.0 / (factor - 0.03))[1]
    assert [stage.mixer for stage in near.stages] == [stage.mixer for stage in plan.stages]
    assert [len(stage.ranks) for stage in far.stages] == [1, 1]


def test_a_plan_that_flips_between_group_and_pipeline_says_so() -> None:
    topology, plan = linked(10.0)
    answer = answer_of(plan, topology)
    for row in answer.effects:
        assert row.kept_value is not None
        assert row.value is not None
        assert row.kept_value >= row.value
    roomier = effect(answer, "memory of d0 (or 1 like it) +1 GiB")
    assert roomier.flips_to is not None
    assert roomier.flips_to.startswith("on 1 device: d0 0..5")


def test_a_layer_moved_into_a_group_costs_what_compiling_that_cut_says() -> None:
    """d0 | d1+d2 by hand: the cut at 2 priced from the cut at 3."""
    topology, plan = linked(1.0)
    placement = placement_of(plan)
    pair = replace(placement.stages[0], devices=("d1", "d2"), tiles=((0, 8), (8, 16)),
                   mixer="replicated", blocks=("head",), layers=(3, 6))  # fmt: skip
    single = replace(pair, devices=("d0",), tiles=((0, 16),), mixer="single", blocks=("embed",),
                     layers=(0, 3))  # fmt: skip
    both = replace(placement, stages=(single, pair))
    moved = replace(both, stages=(replace(single, layers=(0, 2)), replace(pair, layers=(2, 6))))
    by_hand = edited_plan(plan, both)
    found = next(move for move in moves_of(by_hand, topology) if move.target == "d1+d2")
    question = (plan.model, topology, plan.ask)
    assert found.delta_ns == (
        predict(*question, moved).decode.step_ns - predict(*question, both).decode.step_ns
    )


def edited_plan(plan: Plan, placement: Placement) -> Plan:
    stages = [
        {"layers": stage.layers, "mixer": stage.mixer, "blocks": stage.blocks,
         "ranks": [{"device": name, "mlp_tiles": tiles}
                   for name, tiles in zip(stage.devices, stage.tiles, strict=True)]}
        for stage in placement.stages
    ]  # fmt: skip
    return Plan.model_validate(plan.data() | {"stages": stages})


def test_where_solves_take_long_the_most_promising_changes_are_tried() -> None:
    kinds: tuple[Literal["read", "memory", "link"], ...] = ("read", "memory", "link")
    parts = [Part(kind, (name,), f"{kind} {name}", name == "a") for kind in kinds for name in "ab"]
    tried = [Variant(part, factor) for part in parts for factor in (1.1, 0.9)]
    tried.append(Variant(Part("context", (), "context"), 2))
    kept = most_promising(tried, 4)
    assert [(variant.part.kind, variant.part.names, variant.factor) for variant in kept] == [
        ("read", ("a",), 0.9), ("memory", ("a",), 1.1), ("link", ("a",), 0.9), ("context", (), 2)
    ]  # fmt: skip
    assert most_promising(tried, 99) == tuple(tried)


def five_devices_in_groups() -> tuple[Plan, Topology]:
    rows = [build_device(f"g{i}", 1300 * KIB, gb_s=8.0 - i, launch_us=2.0) for i in range(5)]
    topology = build_topology(rows, name="five", latency_us=100.0)
    return compile(tiny_manifest(), topology, tiny_ask(margin=0.0)), topology


def test_with_many_devices_and_groups_only_some_changes_are_solved() -> None:
    some = sensitivity(*five_devices_in_groups())
    assert len(some.effects) == MOST_SLOW_SOLVES
    assert some.thresholds == ()
    assert any(note.startswith("left out, since a solve takes long (--all): ")
               for note in some.notes)  # fmt: skip


@pytest.mark.skipif("PLANCC_SWEEP" not in os.environ, reason="PLANCC_SWEEP: takes half a minute")
def test_all_changes_are_solved_where_all_are_asked() -> None:
    question = five_devices_in_groups()
    some, every = sensitivity(*question), sensitivity(*question, is_full=True)
    assert len(every.effects) > MOST_SLOW_SOLVES
    assert every.thresholds
    assert set(some.effects) <= set(every.effects)
