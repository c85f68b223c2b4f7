"""Traps of models whose layers are not alike: what can be cut, and what follows for the rest."""

from typing import Any

import pytest
from plancc_builders import build_device, build_layer, build_model, build_topology, gib
from plancc_cuts import ledgers_of, placed
from plancc_tp_cases import cut_layer, cut_model, forms_of, sound_plan

from plancc.ir.errors import PlanccError
from plancc.ir.layers import Layer, Mixer, MoeMlp
from plancc.ir.topology import Topology

SHORT = {"context": 16}
DENSE = cut_layer(gib(0.05), gib(1.45))


def cards(names: str, free: float) -> Topology:
    devices = [build_device(name, free, gb_s=900.0) for name in names]
    return build_topology(devices, latency_us=4.0)


def experts() -> Layer:
    """64 experts of 10 MiB, of which a token reads 4."""
    return Layer(
        mixer=Mixer(kind="attention", weight_bytes=gib(0.05), kv_bytes_per_token=0),
        mlp=MoeMlp(kind="moe", num_experts=64, experts_per_token=4, expert_bytes=gib(0.01)),
    )


def test_layers_of_experts_stay_whole_beside_a_group_of_dense_ones() -> None:
    """8 dense layers of 1.5 GiB are read by two cards, 16 of experts lie on a third."""
    model = build_model([DENSE] * 8 + [experts()] * 16, hidden_size=4096)
    plan = sound_plan(model, cards("ABC", 14.0), **SHORT)
    assert [(stage.layers, len(stage.ranks)) for stage in plan.stages] == [
        ((0, 8), 2),
        ((8, 24), 1),
    ]


def test_a_layer_without_mlp_stands_between_two_groups() -> None:
    """It cannot be in either: a card of its own costs less than leaving groups for a pipeline."""
    model = build_model([*[DENSE] * 4, build_layer(gib(0.05)), *[DENSE] * 4], hidden_size=4096)
    best = placed(model, cards("ABCDE", 9.0), **SHORT)
    assert forms_of(best) == [
        ("replicated", ("A", "B"), (0, 4)),
        ("single", ("C",), (4, 5)),
        ("replicated", ("D", "E"), (5, 9)),
    ]
    assert {name for name, _, _ in forms_of(placed(model, cards("AB", 9.0), **SHORT))} == {"single"}


def test_layers_cut_in_other_numbers_of_tiles_are_other_groups() -> None:
    """8 tiles in the first four layers, 12 in the rest: a stage deals the same tiles everywhere."""
    layers = [cut_layer(gib(0.05), gib(1.45), tiles=tiles) for tiles in (8,) * 4 + (12,) * 4]
    model = build_model(layers, hidden_size=4096)
    best = placed(model, cards("ABCD", 9.0), **SHORT)
    assert [layers for _, _, layers in forms_of(best)] == [(0, 4), (4, 8)]
    assert [len(devices) for _, devices, _ in forms_of(best)] == [2, 2]
    assert {name for name, _, _ in forms_of(placed(model, cards("AB", 9.0), **SHORT))} == {"single"}


@pytest.mark.parametrize(("home", "ranks"), [("A", ("A", "B")), ("B", ("B", "A"))])
def test_a_head_pinned_to_a_card_makes_it_lead(home: str, ranks: tuple[str, ...]) -> None:
    """Blocks lie on the lead. Both ways a step takes as long, so a pin costs nothing."""
    model = cut_model(40, gib(0.05), gib(0.45), 8192, embed=gib(0.5), head=gib(0.5))
    best = placed(model, cards("AB", 14.0), pin={"head": home}, **SHORT)
    assert forms_of(best) == [("replicated", ranks, (0, 40))]
    assert ledgers_of(model, cards("AB", 14.0), best, **SHORT)[home].blocks == gib(0.5) * 2
    assert best.proof.value == placed(model, cards("AB", 14.0), **SHORT).proof.value


@pytest.mark.parametrize(
    "flags",
    [{"pin": {"head": "B", "embed": "A"}}, {"pin": {"head": "B"}, "devices": ("A", "B")}],
    ids=["two leads", "asked order"],
)
def test_pins_that_no_one_lead_can_hold_leave_a_pipeline(flags: dict[str, Any]) -> None:
    """A group has one lead; with --devices A,B it is A."""
    model = cut_model(40, gib(0.05), gib(0.45), 8192, embed=gib(0.5), head=gib(0.5))
    best = placed(model, cards("AB", 14.0), **flags, **SHORT)
    assert forms_of(best) == [("single", ("A",), (0, 20)), ("single", ("B",), (20, 40))]
    with pytest.raises(PlanccError, match="--tp 2"):
        placed(model, cards("AB", 14.0), **flags, tp=2, **SHORT)


def test_a_layer_that_reads_anothers_kv_is_in_the_same_group() -> None:
    """Layer 7 reads the KV of layer 4: between two pairs the cut goes around them."""
    own, reads = (
        cut_layer(gib(0.05), gib(0.45), kv=1024),
        cut_layer(gib(0.05), gib(0.45), kv_from=4),
    )
    model = build_model([*[own] * 7, reads, *[own] * 2], hidden_size=4096)
    best = placed(model, cards("ABCD", 2.2), context=1024, tp=2)
    assert len(best.stages) == 2
    cut = best.stages[0].layers[1]
    assert cut <= 4 or cut >= 8
