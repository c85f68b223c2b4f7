"""Predictions of shapes said by hand, beside those that plans have; bounds by the book."""

from pathlib import Path

import pytest
from plancc_card_shapes import Shape, shape_of, shape_plan
from plancc_fake_cards import card_topology
from plancc_plan_figures import (
    Figure,
    bounds,
    mlp_share,
    predicted_us,
    prefill_bound,
    table,
    topology_for,
    tp_bound,
    verdicts,
)

from plancc.compiler.api import compile
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest, read_manifest
from plancc.ir.topology import Topology, read_topology

PLANS = Path(__file__).parents[2] / "plans"


@pytest.fixture(scope="module")
def manifest() -> ModelManifest:
    return read_manifest(PLANS / "models" / "llama-3.1-8b.yaml")


@pytest.fixture(scope="module")
def topology() -> Topology:
    return read_topology(PLANS / "topologies" / "two-h200.yaml")


@pytest.mark.parametrize(
    ("word", "ask"),
    [
        ("1", {"devices": ("gpu0",)}),
        ("2", {"devices": ("gpu0", "gpu1"), "stage_layers": (16, 16), "tp": "off"}),
    ],
)
def test_a_shape_is_predicted_as_the_plan_of_it_is(
    word: str, ask: dict[str, object], manifest: ModelManifest, topology: Topology
) -> None:
    asked = Ask.model_validate({"context": 8320, "prompt": 8192, "head": "last"} | ask)
    expected = compile(manifest, topology, asked).predicted
    shape = shape_of(word, manifest)
    plan = shape_plan(manifest, shape, context=9000, prefill_chunk=512)
    found = predicted_us(plan, topology, range(len(plan.devices)), prompt=8192, context=8320)
    assert found["step"] == expected.decode.step_ns / 1e3
    assert expected.prefill is not None
    assert found["prefill"] == expected.prefill.total_ns / 1e3
    assert [found[f"hop{i}"] for i in range(len(shape.stages))] == [
        stage.hop_ns / 1e3 for stage in expected.decode.stages
    ]
    assert set(found) == {"step", "prefill", *(f"hop{i}" for i in range(len(shape.stages)))}


def test_the_exchange_of_a_group_is_the_measured_one_of_its_cards(
    manifest: ModelManifest, topology: Topology
) -> None:
    """One float32 row of 4,096 numbers from each; from two, where a share is two subtrees."""
    for word, row_bytes in (("tp2", 16384), ("tp2u", 2 * 16384)):
        plan = shape_plan(manifest, shape_of(word, manifest), context=9000)
        found = predicted_us(plan, topology, [0, 1], prompt=64, context=128)
        curve = topology.exchanges[0].curve()
        assert found["exchange0"] == pytest.approx(curve.us(row_bytes), abs=0.01)


def test_seats_of_one_card_are_predicted_as_such(
    manifest: ModelManifest, topology: Topology
) -> None:
    plan = shape_plan(manifest, shape_of("2", manifest), context=9000)
    apart, same = (predicted_us(plan, topology, cards, prompt=4096, context=128)
                   for cards in ([0, 1], [0, 0]))  # fmt: skip
    assert same["hop0"] < apart["hop0"]
    assert same["prefill"] > 1.6 * apart["prefill"]


def test_a_topology_predicts_the_transport_that_all_its_links_have() -> None:
    mixed = card_topology(2)  # p2p there, staged back
    staged, p2p = (
        mixed.model_copy(update={"links": tuple(
            link.model_copy(update={"mode": mode}) for link in mixed.links
        )})
        for mode in ("staged", "p2p")
    )  # fmt: skip
    assert topology_for("p2p", 2, [mixed, staged, p2p]) is p2p
    assert topology_for("staged", 2, [mixed, staged, p2p]) is staged
    assert topology_for("staged", 1, [mixed, staged]) is mixed
    assert topology_for("p2p", 3, [p2p]) is None
    assert topology_for("p2p", 2, [mixed]) is None


def test_bounds_are_those_of_the_book(manifest: ModelManifest) -> None:
    assert tp_bound(0.75, 2) == pytest.approx(1.6)
    assert tp_bound(1.0, 4) == pytest.approx(4)
    assert prefill_bound(8, 2) == pytest.approx(16 / 9)
    assert prefill_bound(1, 4) == 1
    mlp = 32 * 3 * 4096 * 14336 * 2
    mixers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 4096) * 2
    head = (128256 + 1) * 4096 * 2
    kv = 32 * 8192 * 2 * 1024 * 2
    assert mlp_share(manifest, 8192) == pytest.approx(mlp / (mlp + mixers + head + kv), rel=1e-4)


ROWS = [
    Figure("1", "p2p", 512, 4096, "step", 4000.0, 4100.0),
    Figure("1", "p2p", 512, 4096, "prefill", 100_000.0, 120_000.0),
    Figure("2", "p2p", 512, 4096, "step", 4010.0, 4090.0),
    Figure("2", "p2p", 512, 4096, "prefill", 56_250.0, 70_000.0),
    Figure("2", "p2p", 512, 4096, "hop0", 8.0, 10.0),
    Figure("tp2", "p2p", 512, 4096, "step", 3000.0, 3200.0),
    Figure("tp2", "p2p", 512, 4096, "prefill", 60_000.0, 71_000.0),
    Figure("tp2", "staged", 512, 4096, "step", None, 4500.0),
]


def test_the_table_has_a_line_a_figure_with_how_far_it_is_off() -> None:
    lines = table(ROWS).splitlines()
    assert len(lines) == len(ROWS) + 1
    assert lines[1].split() == ["1", "p2p", "512", "4096", "step", "4.00", "4.10", "ms", "+2.5"]
    assert lines[5].split()[4:] == ["hop0", "8.00", "10.00", "us", "+25.0"]
    assert lines[8].split()[1:] == ["staged", "512", "4096", "step", "4.50", "ms"]


def test_gains_stand_beside_what_they_can_be_at_most(manifest: ModelManifest) -> None:
    shapes: list[Shape] = [shape_of(word, manifest) for word in ("1", "2", "tp2")]
    found = bounds(shapes, manifest, ROWS)
    share = mlp_share(manifest, 4096)
    assert found == [
        "2 p2p, step after 4096: -0.2 % of 1",
        "2 p2p, prefill after 4096: 1.71 times 1; at most 1.78 (8 chunks, 2 stages: 0.889 of 2)",
        f"tp2 p2p, step after 4096: 1.28 times 1; at most {tp_bound(share, 2):.2f} (MLPs are "
        f"{100 * share:.1f} % of the bytes)",
        f"tp2 staged, step after 4096: 0.91 times 1; at most {tp_bound(share, 2):.2f} (MLPs are "
        f"{100 * share:.1f} % of the bytes)",
    ]


def test_the_pick_is_told_beside_the_fastest() -> None:
    assert verdicts({("p2p", "latency"): "tp2", ("p2p", "prefill"): "tp2"}, ROWS) == [
        "step p2p, after 4096 by 512: fastest tp2, predicted tp2; the compiler picks tp2, +0.0 %",
        "prefill p2p, after 4096 by 512: fastest 2, predicted 2; the compiler picks tp2, +1.4 %",
        "step staged, after 4096 by 512: fastest tp2",
    ]
