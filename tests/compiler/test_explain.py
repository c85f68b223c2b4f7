"""`plancc explain` from the plan alone: what binds, the picture, the reasons."""

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_examples import tiny_plan
from plancc_explain_plans import GIB, group_plan
from plancc_hand_plans import hand_plan, restamp
from rich.console import Console

from plancc.compiler.explain import explain
from plancc.compiler.explain_binding import Binding
from plancc.compiler.explain_room import held_bytes, next_cut
from plancc.compiler.render_bars import apportion
from plancc.compiler.render_explain import explanation_html, show_explanation
from plancc.ir.plan import Plan

TWO = {"devices": ("d0", "d1"), "stage_layers": (3, 3), "head": "last", "tp": "off"}


def shown(plan: Plan, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_explanation(plan, explain(plan), Console(file=stream, width=width, highlight=False))
    stream.seek(0)
    return "\n".join(line.rstrip() for line in stream.read().splitlines()) + "\n"


def binding(plan: Plan, device: str) -> Binding:
    return next(row for row in explain(plan).bindings if row.device == device)


def edited(plan: Plan, **top: Any) -> Plan:
    return restamp(Plan.model_validate(plan.data() | top))


def reason(plan: Plan, what: str) -> str:
    return dict(explain(plan).reasons)[what]


def row_of(text: str, device: str) -> str:
    """The device's row of the picture."""
    return next(line for line in text.splitlines() if line.startswith(device + " "))


@pytest.mark.parametrize("flags", [TWO, {"max_devices": 1}])
def test_a_round_of_all_streams_is_told_of_one_stage_as_of_several(flags: dict[str, Any]) -> None:
    plan = tiny_plan(objective="throughput", slots=2, **flags)
    assert "; with 2 slots every stream advances a token in" in reason(plan, "time")


def test_stages_begin_where_the_one_before_has_sent_its_rows() -> None:
    beats = explain(group_plan()).beats
    assert [beat.start_ns for beat in beats] == [0, 6_050_000, 12_100_000]
    assert [beat.busy_ns for beat in beats] == [6_000_000, 6_000_000, 7_850_000]
    assert sum(beat.busy_ns + beat.hop_ns for beat in beats) == 20_000_000


def test_memory_binds_a_device_that_cannot_take_one_more_layer() -> None:
    """d1 keeps 0.5 GiB; a layer of its 12 of 16 tiles is 13/16 GiB and 512 KiB of KV."""
    found = binding(group_plan(), "d1")
    assert found.kind == "memory"
    assert found.extra is not None
    assert found.extra.size_bytes == 13 * GIB // 16 + 4096 * 128
    assert found.extra.left_bytes == GIB // 2 - found.extra.size_bytes < 0
    assert found.extra.more_layers == 0
    assert "layer 18 of d3+d4 needs 832.5 MiB, 320.5 MiB too much" in found.words


def test_speed_binds_a_device_with_room_that_is_slower_than_its_neighbour() -> None:
    found = binding(group_plan(), "d0")
    assert found.kind == "speed"
    assert found.extra is not None
    assert found.extra.layers == (6, 7)
    assert found.extra.more_layers == 2  # 2.5 GiB are free, layers are 1 GiB and 512 KiB
    assert found.words == "speed: room for 2 more, but d1+d2 reads 2 times faster"


def test_a_rank_with_room_is_bound_by_the_full_rank_of_its_group() -> None:
    found = binding(group_plan(), "d2")
    assert found.kind == "mate"
    assert "but d1 has none" in found.words


def test_a_rank_without_the_mixer_takes_its_tiles_alone() -> None:
    """d4 has 8 of 16 tiles of a 3/4 GiB MLP, and neither mixer nor KV."""
    plan = group_plan()
    assert held_bytes(plan, plan.stages[2], "d4", 17) == 3 * GIB // 8
    assert held_bytes(plan, plan.stages[2], "d3", 17) == 5 * GIB // 8 + 4096 * 128


def test_one_device_holds_the_whole_model() -> None:
    assert binding(hand_plan((10,)), "d0").words == "holds the whole model"


@pytest.mark.parametrize(
    ("mixer", "words"),
    [
        ("replicated", ["shares all layers, runs all mixers"] * 2),
        ("owned", ["shares all layers, runs all mixers", "shares all layers, mixers on d0"]),
    ],
)
def test_a_group_alone_says_who_runs_the_mixers(mixer: str, words: list[str]) -> None:
    ranks = [{"device": "d0", "mlp_tiles": [0, 1]}, {"device": "d1", "mlp_tiles": [1, 2]}]
    stage = {"layers": [0, 10], "mixer": mixer, "ranks": ranks, "blocks": ["embed", "head"]}
    time = {"compute_ns": 900, "exchange_ns": 100, "hop_ns": 0}
    decode = {"step_ns": 1000, "tokens_per_s": 1e6, "stages": [time]}
    plan = edited(hand_plan((5, 10)), stages=[stage], predicted={"decode": decode})
    assert [row.words for row in explain(plan).bindings] == words


def test_an_asked_cut_is_the_reason_where_nothing_else_is() -> None:
    """Equal devices with room: the cut was asked for."""
    data = hand_plan((5, 10)).data()
    ledger = data["devices"][0]["ledger"] | {"free_after": 100_000}
    devices = [device | {"ledger": ledger, "budget_bytes": 101_000} for device in data["devices"]]
    plan = edited(hand_plan((5, 10)), devices=devices)
    assert binding(plan, "d1").kind in ("balance", "speed")
    asked = edited(plan, ask=data["ask"] | {"stage_layers": [5, 5]})
    words = [row.words for row in explain(asked).bindings if row.kind == "balance"]
    assert words
    assert all("the cut was asked for" in line for line in words)


def test_layers_that_share_kv_are_one_piece() -> None:
    layers = [{"mixer": {"kind": "attention", "weight_bytes": 10, "kv_bytes_per_token": 2}}]
    reader = {"mixer": {"kind": "attention", "weight_bytes": 10}, "kv_from": 1}
    model = hand_plan((4,)).model.model_dump(mode="json") | {
        "layers": [*layers * 2, reader, *layers]
    }
    plan = edited(hand_plan((4,)), model=model)
    assert [next_cut(plan.model, 0, 1), next_cut(plan.model, 1, 1)] == [1, 3]
    assert next_cut(plan.model, 3, -1) == 1
    assert next_cut(plan.model, 4, 1) is None


def test_the_margin_says_what_it_cost() -> None:
    assert reason(group_plan(), "margin") == (
        "the fastest shape takes 19.80 ms; this one costs +1.0 %, within the 3 % margin, and is "
        "smaller"
    )


def test_the_margin_names_the_shape_that_it_passed_over() -> None:
    rows = [{"shape": "pipeline of 6 stages", "verdict": "within margin", "value": 19_800_000}]
    assert "the fastest shape (pipeline of 6 stages) takes" in reason(
        group_plan(alternatives=rows), "margin"
    )


def test_a_gap_is_never_called_proven() -> None:
    data = group_plan().data()["provenance"]
    data["solver"] |= {"status": "feasible", "bound": 19_380_000, "gap": 0.031}
    words = reason(edited(group_plan(), provenance=data), "proof")
    assert "not proven: at most 3.1 % could be won" in words
    assert "proven by" not in words


def test_time_is_split_into_computing_exchanging_and_hopping() -> None:
    words = reason(group_plan(), "time")
    assert "87.0 % computing, 12.2 % exchanging within groups, 0.8 % hopping" in words
    assert "39.2 % in the slowest stage, 2 (d3+d4)" in words


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_screen_or_cut_short(width: int) -> None:
    for plan in (group_plan(), tiny_plan(**TWO), hand_plan()):
        text = shown(plan, width)
        assert max(map(len, text.splitlines())) <= width
        assert "\u2026" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_bars_are_as_long_as_their_share_of_the_step(width: int) -> None:
    """But for a cell of each of three hops: d0 has 6 of 20 ms, d1 6 with exchanges, d3 7.85."""
    text = shown(group_plan(), width, "ascii")
    axis = next(line for line in text.splitlines() if "20.00 ms" in line)
    cells = axis.index("20.00 ms") + len("20.00 ms") - axis.index("0")
    for device, share in (("d0", 0.3), ("d1", 0.3), ("d2", 0.3), ("d3", 0.3925)):
        drawn = re.search(r"[#=]+", row_of(text, device))
        assert drawn is not None
        assert abs(len(drawn.group()) - share * cells) <= 3, device


def test_ranks_of_a_group_are_drawn_at_the_same_time_with_their_exchanges() -> None:
    text = shown(group_plan(), 80, "ascii")
    pictures = [row_of(text, name)[4:48] for name in ("d1", "d2")]
    assert pictures[0] == pictures[1]
    assert "=" in pictures[0]
    assert "=" not in row_of(text, "d0")[4:48]


def test_every_hop_is_seen_however_short() -> None:
    text = shown(group_plan(), 80, "ascii")
    for name in ("d0", "d1", "d3"):
        assert ">" in row_of(text, name)


def test_a_device_of_several_seats_has_one_row() -> None:
    data = hand_plan((3, 6, 10)).data()
    for stage in data["stages"]:
        stage["ranks"][0]["device"] = "d0"
    plan = restamp(Plan.model_validate(data | {"devices": data["devices"][:1]}))
    assert [row.device for row in explain(plan).bindings] == ["d0"]
    assert explain(plan).bindings[0].stages == (0, 1, 2)
    assert max(map(len, shown(plan).splitlines())) <= 80


def test_a_long_device_name_keeps_its_end() -> None:
    name = "a-host-with-a-long-name.example:gpu0"
    data = hand_plan((10,)).data()
    data["devices"][0]["name"] = data["stages"][0]["ranks"][0]["device"] = name
    text = shown(restamp(Plan.model_validate(data)))
    assert ".." + name[-18:] in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_without_unicode_gets_letters_and_a_pipe_no_colour() -> None:
    text = shown(group_plan(), encoding="ascii")
    assert text.isascii()
    assert "\x1b" not in text


def test_html_is_one_page_with_the_same_words() -> None:
    page = explanation_html(group_plan(), explain(group_plan()))
    assert page.startswith("<!DOCTYPE html>")
    assert "What binds each device" in page
    assert not re.search(r"(src|href)=", page)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40).filter(any), st.integers(1, 120))
def test_cells_add_up_and_nothing_that_takes_time_is_hidden(sizes: list[int], length: int) -> None:
    cells = apportion(dict(enumerate(sizes)), length)
    assert sum(cells.values()) == length
    assert all(cells[i] == 0 for i, size in enumerate(sizes) if not size)
    if 2 * sum(map(bool, sizes)) <= length:
        assert all(cells[i] for i, size in enumerate(sizes) if size)


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_of_groups_is_as_reviewed(
    width: int, golden: Callable[[str, str], None]
) -> None:
    plan = group_plan().model_copy(update={"digest": "0123456789abcdef"})
    golden(f"explain_groups_{width}.txt", shown(plan, width))
