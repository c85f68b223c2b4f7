"""Words for shapes, and what they mean."""

import pytest
from plancc_card_shapes import (
    Shape,
    borders,
    cards_of,
    manifest_of_config,
    seated_shape,
    shape_of,
    shape_plan,
)
from plancc_checkpoints import TinyLlama, config_of
from plancc_group_plans import cpu_topology, stage

from plancc.compiler.api import compile_passes
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest

SPEC = TinyLlama(num_layers=8, intermediate_size=128)  # 16 tiles


@pytest.fixture(scope="module")
def manifest() -> ModelManifest:
    return manifest_of_config(config_of(SPEC), "toy")


def test_words_are_stages_and_groups(manifest: ModelManifest) -> None:
    assert shape_of("1", manifest).stages == (stage((0, 8), "cpu0"),)
    assert shape_of("2u", manifest).stages == (stage((0, 3), "cpu0"), stage((3, 8), "cpu1"))
    assert shape_of("tp2uo", manifest).stages == (
        stage((0, 8), "cpu0", "cpu1", tiles=(6,), mixer="owned"),
    )
    assert shape_of("2xtp2", manifest).stages == (
        stage((0, 4), "cpu0", "cpu1", tiles=(8,), mixer="replicated"),
        stage((4, 8), "cpu2", "cpu3", tiles=(8,), mixer="replicated"),
    )
    two = shape_of("2h", manifest)
    assert (two.head, two.num_ranks, shape_of("2xtp2", manifest).num_ranks) == ("first", 1, 2)
    assert not two.is_like(shape_of("2", manifest))


@pytest.mark.parametrize("word", ["", "x2", "2x", "tp", "2xtp", "0", "9", "tp17", "2z", "2tp2"])
def test_other_words_are_refused(word: str, manifest: ModelManifest) -> None:
    with pytest.raises(ValueError, match=f"shape '?{word}"):
        shape_of(word, manifest)


def test_uneven_parts_are_never_empty_and_grow() -> None:
    for total in range(1, 40):
        for parts in range(1, min(total, 16) + 1):
            for is_even in (False, True):
                found = borders(total, parts, is_even=is_even)
                assert (found[0], found[-1], len(found)) == (0, total, parts + 1)
                assert found == sorted(set(found))
    assert borders(16, 2, is_even=False) == [0, 6, 16]


def test_seats_are_dealt_over_cards_by_their_number(manifest: ModelManifest) -> None:
    plan = shape_plan(manifest, shape_of("2xtp2", manifest))
    assert cards_of(plan, 2) == [0, 1, 0, 1]
    assert cards_of(plan, 2, is_swapped=True) == [1, 0, 1, 0]
    assert cards_of(plan, 1) == [0, 0, 0, 0]
    second = Shape("pick", (stage((0, 8), "cpu1"),))
    assert cards_of(shape_plan(manifest, second), 2) == [1]


def test_what_the_compiler_places_is_the_shape_of_its_word(manifest: ModelManifest) -> None:
    topology = cpu_topology(2, names="card")
    for word, how in (("2", {"stage_layers": (4, 4), "tp": "off"}), ("tp2", {"tp": 2})):
        ask = Ask.model_validate({"context": 64, "devices": ("card0", "card1"), "head": "last"}
                                 | how)  # fmt: skip
        placement = compile_passes(manifest, topology, ask, stop_after="place").placement
        assert placement is not None
        found = seated_shape("pick", placement.stages, ["card0", "card1"])
        assert found.is_like(shape_of(word, manifest)), found


def test_every_second_layer_has_the_window_and_fewer_layers_may_be_asked() -> None:
    found = manifest_of_config(config_of(SPEC), "hybrid", num_layers=3, window=20)
    assert [layer.mixer.window for layer in found.layers] == [20, None, 20]
    assert len(manifest_of_config(config_of(SPEC), "toy").layers) == 8
