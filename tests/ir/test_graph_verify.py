"""Each rule of the verifier catches the graph that breaks it, and names the op."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from plancc.ir.graph import Graph
from plancc.ir.graph_text import parse_graph
from plancc.ir.op import Op
from plancc.ir.verify import RULES, InvalidGraph, verify

PLACED = """\
%embed = embed() {weight_bytes=10} : 4x8xfloat32 @s0.r0
%l0.norm1 = norm(%embed) {layer=0} : 4x8xfloat32 @s0.r0
%l0.mixer = mixer(%l0.norm1) {layer=0, mixer="attention", weight_bytes=7} : 4x8xfloat32 @s0.r0
%l0.add1 = add(%embed, %l0.mixer) {layer=0} : 4x8xfloat32 @s0.r0
%s = send(%l0.add1) {link=0, payload="hidden"} : 4x8xfloat32 @s0.r0
%r = recv(%s) {link=0, payload="hidden"} : 4x8xfloat32 @s1.r1
%l1.norm1 = norm(%r) {layer=1} : 4x8xfloat32 @s1.r1
%l1.mixer = mixer(%l1.norm1) {layer=1, mixer="attention", weight_bytes=7} : 4x8xfloat32 @s1.r1
%l1.add1 = add(%r, %l1.mixer) {layer=1} : 4x8xfloat32 @s1.r1
%l1.norm2 = norm(%l1.add1) {layer=1} : 4x8xfloat32 @s1.r1
%l1.mlp = mlp(%l1.norm2) {layer=1, mlp="swiglu", weight_bytes=9, tiles=[0, 4], num_tiles=4} : 4x8xfloat32 @s1.r1
%l1.add2 = add(%l1.add1, %l1.mlp) {layer=1} : 4x8xfloat32 @s1.r1
%final = norm(%l1.add2) {layer=null} : 4x8xfloat32 @s1.r1
%head = head(%final) {weight_bytes=10, tied=false} : 1x32xfloat32 @s1.r1
%sample = sample(%head) {} : 1x1xint64 @s1.r1
return %sample
"""  # noqa: E501

# rule -> (text to replace, by what) in a graph that keeps every rule
BREAKS: dict[str, tuple[str, str]] = {
    "names_are_single": ("%l1.norm2 = norm(%l1.add1)", "%l1.norm1 = norm(%l1.add1)"),
    "inputs_are_defined_before_use": ("norm(%embed)", "norm(%head)"),
    "outputs_are_defined": ("return %sample", "return %nothing"),
    "inputs_are_as_many_as_the_kind_takes": ("add(%embed, %l0.mixer)", "add(%l0.mixer)"),
    "types_are_passed_on": ("{layer=0} : 4x8xfloat32", "{layer=0} : 4x9xfloat32"),
    "every_layer_is_computed_once_in_order": ('layer=1, mixer="att', 'layer=2, mixer="att'),
    "ends_are_single": ("%embed = embed() {weight_bytes=10}", "%embed = norm() {layer=0}"),
    "shares_of_an_mlp_are_exchanged": ("tiles=[0, 4]", "tiles=[0, 3]"),
    "tiles_are_a_run": ("tiles=[0, 4]", "tiles=[2, 5]"),
    "all_are_seated_or_none": ("4x8xfloat32 @s0.r0\n%l0.norm1", "4x8xfloat32\n%l0.norm1"),
    "a_layer_is_in_one_stage": (
        "%l1.norm2 = norm(%l1.add1) {layer=1}",
        "%l1.norm2 = norm(%l1.add1) {layer=0}",
    ),
    "borrowed_kv_is_in_the_same_stage": (
        'layer=1, mixer="attention", weight_bytes=7',
        'layer=1, mixer="attention", weight_bytes=7, kv_from=0',
    ),
    "values_cross_ranks_by_send_and_recv": ("norm(%r)", "norm(%l0.add1)"),
    "every_send_has_its_recv": (
        '%r = recv(%s) {link=0, payload="hidden"}',
        '%r = recv(%s) {link=1, payload="hidden"}',
    ),
}


def broken_rules(graph: Graph) -> dict[str, list[str]]:
    """Problems by rule."""
    try:
        verify(graph)
    except InvalidGraph as error:
        found: dict[str, list[str]] = {}
        for problem in error.problems:
            rule, _, words = problem.partition(": ")
            found.setdefault(rule, []).append(words)
        return found
    return {}


def test_a_sound_graph_keeps_every_rule() -> None:
    assert broken_rules(parse_graph(PLACED)) == {}


def test_every_rule_has_a_graph_that_breaks_it() -> None:
    names = [rule.__name__ for rule in RULES]
    assert sorted([*BREAKS, "attributes_are_of_the_kind"]) == sorted(names)


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_is_named(rule: str) -> None:
    before, after = BREAKS[rule]
    text = PLACED.replace(before, after, 1)
    assert text != PLACED
    assert rule in broken_rules(parse_graph(text))


def test_attributes_of_another_kind_are_named() -> None:
    graph = parse_graph(PLACED)
    wrong = graph.by_name["head"].attrs

    def change(op: Op) -> Op:
        return replace(op, attrs=wrong) if op.name == "l0.add1" else op

    assert "attributes_are_of_the_kind" in broken_rules(graph.map(change))


def test_a_rank_in_two_stages_is_named() -> None:
    graph = parse_graph(PLACED.replace("@s1.r1", "@s1.r0"))
    assert any("two stages" in words for words in broken_rules(graph)["all_are_seated_or_none"])


def test_all_problems_are_told_at_once() -> None:
    text = PLACED.replace("tiles=[0, 4]", "tiles=[4, 4]").replace("return %sample", "return %x")
    assert {"tiles_are_a_run", "outputs_are_defined"} <= set(broken_rules(parse_graph(text)))


def test_an_unplaced_graph_is_sound_too() -> None:
    unplaced = PLACED.replace(" @s0.r0", "").replace(" @s1.r1", "")
    lines = [line for line in unplaced.splitlines() if not line.startswith(("%s =", "%r ="))]
    without_hop = "\n".join(lines).replace("(%r", "(%l0.add1")
    assert broken_rules(parse_graph(without_hop)) == {}


@pytest.mark.parametrize("name", ["consumers", "seats"])
def test_look_ups_agree_with_the_ops(name: str) -> None:
    graph = parse_graph(PLACED)
    looks: dict[str, Callable[[], object]] = {
        "consumers": lambda: [op.name for op in graph.consumers["l1.add1"]],
        "seats": lambda: [(seat.stage, seat.rank) for seat in graph.seats],
    }
    expected = {"consumers": ["l1.norm2", "l1.add2"], "seats": [(0, 0), (1, 1)]}
    assert looks[name]() == expected[name]
