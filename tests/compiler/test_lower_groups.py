"""TP groups from a placement to links and programs: the format's convention, rank by rank."""

from collections.abc import Callable
from typing import Any

import pytest
from plancc_examples import tiny_ask, tiny_manifest
from plancc_group_plans import cpu_topology, group_plan, lowered, stage

from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.graph_text import graph_text, parse_graph
from plancc.ir.groups import exchange_pairs, hop_pairs, partial_row_bytes, spread_pairs
from plancc.ir.legality import plan_problems
from plancc.ir.op import MlpAttrs, OpKind
from plancc.ir.plan import Plan

TWO = stage((0, 6), "cpu0", "cpu1", tiles=(10,), mixer="replicated")
SHAPES: dict[str, tuple[list[PlacedStage], Any]] = {
    "replicated": ([TWO], "last"),
    "owned": ([stage((0, 6), "cpu0", "cpu1", "cpu2", tiles=(5, 9), mixer="owned")], "last"),
    "group, single": ([stage((0, 2), "cpu0", "cpu1", tiles=(3,), mixer="replicated"),
                       stage((2, 6), "cpu2")], "last"),
    "single, group, head first": ([stage((0, 1), "cpu0"), stage((1, 6), "cpu1", "cpu2", tiles=(3,),
                                   mixer="replicated")], "first"),
    "replicated, owned": ([stage((0, 3), "cpu0", "cpu1", tiles=(10,), mixer="replicated"),
                           stage((3, 6), "cpu2", "cpu3", tiles=(3,), mixer="owned")], "last"),
    "owned, replicated of 3": ([stage((0, 3), "cpu0", "cpu1", tiles=(10,), mixer="owned"),
                                stage((3, 6), "cpu2", "cpu3", "cpu4", tiles=(3, 9),
                                      mixer="replicated")], "first"),
    "2 x 2": ([stage((0, 3), "cpu0", "cpu1", tiles=(8,), mixer="replicated"),
               stage((3, 6), "cpu2", "cpu3", tiles=(8,), mixer="replicated")], "last"),
}  # fmt: skip


def plan_named(name: str) -> Plan:
    stages, head = SHAPES[name]
    return group_plan(tiny_manifest(), stages, head=head)


def words(plan: Plan, rank: int) -> list[str]:
    """A program in short: 'run 0..1 mixer', 'send 2', 'exchange 0'."""
    text = []
    for item in plan.programs[rank].instructions:
        data = item.model_dump(mode="json")
        op = data["op"]
        if op == "run":
            flags = [f"{data['layers'][0]}..{data['layers'][1]}"] if any(data["layers"]) else []
            flags += [key for key in ("embed", "head") if data[key]]
            text.append(" ".join(["run", *flags, *([data["part"]] if "part" in data else [])]))
        else:
            text.append(f"{op} {data.get('link', data.get('layer', ''))}".strip())
    return text


@pytest.mark.parametrize("name", SHAPES)
def test_a_lowered_group_is_sound_by_the_check_that_planrun_applies(name: str) -> None:
    assert plan_problems(plan_named(name)) == ()


@pytest.mark.parametrize("name", SHAPES)
def test_the_graph_of_a_group_parses_back(name: str) -> None:
    stages, head = SHAPES[name]
    graph = lowered(tiny_manifest(), cpu_topology(5), tiny_ask(), stages, head).graph
    assert parse_graph(graph_text(graph)) == graph


@pytest.mark.parametrize("name", SHAPES)
def test_links_are_the_pairs_that_everybody_counts_with(name: str) -> None:
    plan = plan_named(name)
    firsts = [sum(len(s.ranks) for s in plan.stages[:i]) for i in range(len(plan.stages))]
    shapes = [(s.mixer, len(s.ranks)) for s in plan.stages]
    hidden = [(firsts[0] + a, firsts[0] + b) for a, b in spread_pairs(*shapes[0])]
    for index, (mixer, count) in enumerate(shapes):
        if mixer == "owned":
            hidden += [(firsts[index], firsts[index] + rank) for rank in range(1, count)]
        if index + 1 < len(shapes):
            pairs = hop_pairs(shapes[index], shapes[index + 1])
            hidden += [(firsts[index] + a, firsts[index + 1] + b) for a, b in pairs]
    if SHAPES[name][1] == "first":
        hidden.append((firsts[-1], 0))
    partial = [(firsts[i] + a, firsts[i] + b) for i, shape in enumerate(shapes)
               for a, b in exchange_pairs(*shape)]  # fmt: skip
    found = {kind: sorted((link.from_, link.to) for link in plan.links if link.payload == kind)
             for kind in ("hidden", "partial", "step")}  # fmt: skip
    assert found["hidden"] == sorted(hidden)
    assert found["partial"] == sorted(partial)
    assert len(found["step"]) == len(plan.programs) - 1


def test_ranks_of_a_replicated_group_differ_in_their_tiles_alone() -> None:
    """Each runs a layer, exchanges, and goes on; the lead embeds and has the head."""
    plan = group_plan(tiny_manifest(), [TWO])
    layers = [text for i in range(6) for text in (f"run {i}..{i + 1}", f"exchange {i}")]
    assert words(plan, 0) == ["send 1", "run embed", "send 0", *layers, "run head", "sample"]
    first, *rest = layers
    assert words(plan, 1) == ["recv 1", "recv 0", first, "free 0", *rest, "run"]
    graph = lowered(tiny_manifest(), cpu_topology(2), tiny_ask(), [TWO]).graph
    tiles = {op.seat.rank: op.attrs.tiles for op in graph.ops
             if isinstance(op.attrs, MlpAttrs) and op.seat}  # fmt: skip
    assert tiles == {0: (0, 10), 1: (10, 16)}


def test_an_owner_sends_normed_rows_before_it_runs_its_own_share() -> None:
    plan = plan_named("owned")
    owner, other = words(plan, 0), words(plan, 1)
    assert owner[2:8] == ["run 0..1 embed mixer", "send 0", "send 1", "run 0..1 mlp",
                          "exchange 0", "run 1..2 mixer"]  # fmt: skip
    assert owner[-3:] == ["exchange 5", "run head", "sample"]
    assert other[:5] == ["recv 2", "recv 0", "run 0..1 mlp", "free 0", "exchange 0"]
    assert other[-1] == "exchange 5"
    mixers = lowered(tiny_manifest(), cpu_topology(3), tiny_ask(), SHAPES["owned"][0]).graph.ops
    assert {op.seat.rank for op in mixers if op.kind is OpKind.MIXER and op.seat} == {0}


def test_partial_rows_are_as_wide_as_the_roots_of_the_share() -> None:
    """Of 16 tiles [5, 9) has roots [5,6) [6,8) [8,9), and [9, 16) [9,10) [10,12) [12,16)."""
    plan = plan_named("owned")
    rows = {link.from_: link.bytes_per_row for link in plan.links if link.payload == "partial"}
    assert rows == {1: partial_row_bytes(plan.model, 3), 2: partial_row_bytes(plan.model, 3)}
    assert partial_row_bytes(plan.model, 3) == 3 * plan.model.hidden_size * 4


def test_a_plan_without_groups_says_nothing_of_parts() -> None:
    plan = group_plan(tiny_manifest(), [stage((0, 2), "cpu0"), stage((2, 6), "cpu1")])
    assert "part" not in plan.to_json()
    assert "exchange_ns" in plan.to_json()


def test_the_text_of_a_lowered_group_is_as_reviewed(golden: Callable[[str, str], None]) -> None:
    """Two layers: replicas with unequal shares, then an owner's layer."""
    manifest = tiny_manifest()
    manifest = manifest.model_copy(update={"layers": manifest.layers[:2]})
    stages = [
        stage((0, 1), "cpu0", "cpu1", tiles=(10,), mixer="replicated"),
        stage((1, 2), "cpu2", "cpu3", tiles=(3,), mixer="owned"),
    ]
    graph = lowered(manifest, cpu_topology(4), tiny_ask(), stages).graph
    golden("graph_after_lower_groups.txt", graph_text(graph))
