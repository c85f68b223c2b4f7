"""Two plans in words: what moved, what it costs, and whether the text can change."""

import copy
from collections.abc import Callable
from typing import Any

import click
import pytest
from plancc_edits import single_edits
from plancc_examples import tiny_plan
from plancc_hand_plans import hand_data, hand_plan, restamp

from plancc.compiler.diff import PlanDiff, diff_plans
from plancc.compiler.render_diff import diff_lines
from plancc.ir.plan import Plan

TWO = {"devices": ("d0", "d1")}


def changed(edit: Callable[[dict[str, Any]], None], **options: Any) -> PlanDiff:
    """From a plan by hand to the same with an edit."""
    data = copy.deepcopy(hand_data(**options))
    edit(data)
    return diff_plans(hand_plan(**options), restamp(Plan.model_validate(data)))


def lines_of(diff: PlanDiff, title: str) -> tuple[str, ...]:
    return next((section.lines for section in diff.sections if section.title == title), ())


def plain(diff: PlanDiff) -> list[str]:
    return [click.unstyle(line) for line in diff_lines(diff)]


def test_a_plan_does_not_differ_from_itself() -> None:
    diff = diff_plans(tiny_plan(**TWO), tiny_plan(**TWO))
    assert diff.is_empty
    assert plain(diff) == ["No changes."]


def test_the_digest_alone_is_no_difference() -> None:
    plan = hand_plan()
    assert diff_plans(plan, plan.model_copy(update={"digest": "x"})).is_empty


def test_moved_layers_are_told_by_range_and_devices() -> None:
    diff = diff_plans(hand_plan((3, 6, 10)), hand_plan((2, 7, 10)))
    assert lines_of(diff, "layers") == ("layer 2: d0 -> d1", "layer 6: d2 -> d1")


def test_neighbours_that_move_together_share_a_line() -> None:
    diff = diff_plans(hand_plan((5, 10)), hand_plan((2, 10)))
    assert lines_of(diff, "layers") == ("layers 2..4: d0 -> d1",)


def test_a_device_more_is_opened_and_layers_go_to_it() -> None:
    diff = diff_plans(hand_plan((10,)), hand_plan((8, 10)))
    assert lines_of(diff, "layers") == ("layers 8..9: d0 -> d1",)
    assert lines_of(diff, "blocks") == ("head: d0 -> d1",)
    assert lines_of(diff, "memory")[0].startswith("d1 is opened")
    assert lines_of(diff, "seats") == ("stages d0 -> d0 | d1",)
    back = diff_plans(hand_plan((8, 10)), hand_plan((10,)))
    assert lines_of(back, "memory")[0].startswith("d1 is no longer used")


def test_bytes_are_told_by_device_with_the_parts_that_changed() -> None:
    def edit(data: dict[str, Any]) -> None:
        data["devices"][1]["ledger"] |= {"kv": 1074, "total": 2024, "free_after": -824}

    assert lines_of(changed(edit), "memory") == (
        "d1 1000 B -> 2.0 KiB, free 200 B -> -824 B",
        "  kv +1.0 KiB",
    )


def test_seats_of_a_repeated_device_are_told_apart() -> None:
    one, two = (tiny_plan(devices=("d2", "d2"), stage_layers=cut) for cut in ((2, 4), (3, 3)))
    assert lines_of(diff_plans(one, two), "layers") == ("layer 2: d2#1 -> d2#0",)


SETTINGS: list[tuple[tuple[Any, ...], Any, str, str]] = [
    (("runtime", "slots"), 2, "runtime", "slots 1 -> 2"),
    (("runtime", "prefill_chunk"), 64, "runtime", "prefill_chunk 512 -> 64"),
    (("runtime", "timeouts"), {"step_s": 5.0}, "runtime", "timeout step_s 60.0 -> 5.0"),
    (
        ("runtime", "hosts", 0, "address"),
        "10.0.0.1",
        "runtime",
        "hosts h0=127.0.0.1 -> h0=10.0.0.1",
    ),
    (("ask", "margin"), 0.05, "asked", "--margin 0.03 -> 0.05"),
    (("ask", "pin"), {"head": "d1"}, "asked", "--pin none -> head=d1"),
    (
        ("links", 0, "transport"),
        "nccl",
        "links",
        "d0 -> d1: gloo, 128 B a row, 2 slots -> nccl, 128 B a row, 2 slots",
    ),
    (
        ("predicted", "decode", "step_ns"),
        1100,
        "predicted",
        "decode 1.0 us -> 1.1 us a token (+10.0 %)",
    ),
    (("provenance", "solver", "status"), "feasible", "proof", "status optimal -> feasible"),
    (("provenance", "plancc"), "0.2.0", "inputs", "plancc 0.1.0 -> 0.2.0"),
    (
        ("inputs", "model", "sha256"),
        "f" * 64,
        "inputs",
        "model hand: contents changed, 000000000000 -> ffffffffffff",
    ),
    (("inputs", "topology", "name"), "table", "inputs", "topology desk -> table"),
    (("devices", 0, "budget_bytes"), 2**20, "memory", "d0 budget 1.2 KiB -> 1.0 MiB (+1022.8 KiB)"),
    (("devices", 0, "uuid"), "GPU-1", "memory", "d0 uuid none -> GPU-1"),
    (("stages", 1, "ranks", 0, "mlp_tiles"), [0, 2], "seats", "stage 1 tiles [0, 1) -> [0, 2)"),
    (
        ("alternatives",),
        [{"shape": "x", "verdict": "slower"}],
        "other",
        "alternatives differs, and nothing that has words of its own",
    ),
]


@pytest.mark.parametrize(("path", "value", "title", "line"), SETTINGS)
def test_a_changed_setting_is_told_in_its_section(
    path: tuple[Any, ...], value: Any, title: str, line: str
) -> None:
    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    diff = changed(edit)
    assert line in lines_of(diff, title)
    assert not diff.is_empty


def test_every_value_of_a_plan_that_changes_makes_a_difference() -> None:
    """No edit of the document may be answered by "No changes."."""
    before = hand_plan()
    silent = [
        path
        for path, data in single_edits(before.data())
        if diff_plans(before, Plan.model_validate(data)).is_empty
    ]
    assert silent == []


def test_a_moved_layer_changes_no_bit_of_the_answer() -> None:
    diff = diff_plans(hand_plan((3, 6, 10)), hand_plan((2, 7, 10)))
    assert plain(diff)[0] == "same answers, bit for bit"


def test_another_context_only_ends_texts_elsewhere() -> None:
    def edit(data: dict[str, Any]) -> None:
        data["runtime"]["context"] = 64

    assert plain(changed(edit))[0] == "same answers, bit for bit, up to 64 tokens"


ANSWERS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("weights", "sha256"), "f" * 64, "weights 222222222222 -> ffffffffffff"),
    (("weights",), None, "weights 222222222222 -> none"),
    (("runtime", "kv_dtype"), "float16", "kv_dtype bfloat16 -> float16"),
    (("model", "dtype"), "float16", "model dtype bfloat16 -> float16"),
    (("runtime", "kernels", "mlp"), "fast/2", "kernel of mlp tile_tree/1 -> fast/2"),
    (("model", "hidden_size"), 128, "model hidden_size 64 -> 128"),
    (("model", "geometry"), {"norm_eps": 1e-5}, "model geometry"),
]


@pytest.mark.parametrize(("path", "value", "reason"), ANSWERS)
def test_what_may_change_the_answer_is_named_first(
    path: tuple[Any, ...], value: Any, reason: str
) -> None:
    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    assert plain(changed(edit))[0] == f"answers may change: {reason}"


def test_without_weights_nobody_can_tell() -> None:
    one, two = (hand_plan(cuts, weights=None) for cuts in ((3, 10), (4, 10)))
    assert plain(diff_plans(one, two))[0].startswith("cannot tell whether answers change")


def test_a_rendered_diff_is_as_reviewed(golden: Callable[[str, str], None]) -> None:
    one = tiny_plan(**TWO, stage_layers=(3, 3))
    two = tiny_plan(devices=("d2", "d1"), stage_layers=(4, 2), slots=2, head="first")
    golden("diff.txt", "\n".join(plain(diff_plans(one, two))) + "\n")


@pytest.mark.parametrize("screen", [60, 80, 100])
def test_at_a_terminal_long_lines_go_on_under_their_own_column(screen: int) -> None:
    diff = diff_plans(tiny_plan(**TWO), tiny_plan(devices=("d1", "d2"), slots=3, context=96))
    whole = plain(diff)
    lines = [click.unstyle(line) for line in diff_lines(diff, screen)]
    assert max(map(len, whole)) > 80
    assert max(map(len, lines)) <= screen
    assert " ".join(lines).split() == " ".join(whole).split()
    column = len("  ") + max(len(section.title) for section in diff.sections) + len("  ")
    assert all(line[column - 1] == " " for line in lines if line.startswith("  "))
