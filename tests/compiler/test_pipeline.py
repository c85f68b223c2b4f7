"""The passes in order: verified between, printed as text that parses back, stopped where asked."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from plancc_builders import build_layer, build_manifest, build_model
from plancc_examples import NUM_LAYERS, three_devices, tiny_ask, tiny_manifest
from plancc_hand_plans import hand_data

from plancc.compiler.api import compile_passes
from plancc.compiler.compilation import Compilation
from plancc.compiler.pipeline import PASS_NAMES, PIPELINE
from plancc.ir.graph_text import graph_text, parse_graph
from plancc.ir.instruction import Instruction, Run
from plancc.ir.op import MixerAttrs, OpKind
from plancc.ir.verify import InvalidGraph, verify

TWO = {"devices": ("d0", "d1"), "stage_layers": (3, 3), "head": "last"}


def states(**flags: object) -> dict[str, Compilation]:
    """What there is after each pass."""
    seen: dict[str, Compilation] = {}
    compile_passes(tiny_manifest(), three_devices(), tiny_ask(**flags), observe=seen.__setitem__)
    return seen


def test_the_passes_are_those_of_the_design_in_order() -> None:
    assert PASS_NAMES == ("build", "annotate", "place", "lower", "check", "freeze")
    assert tuple(states(**TWO)) == PASS_NAMES


@pytest.mark.parametrize("name", PASS_NAMES)
def test_the_graph_after_a_pass_is_sound_and_its_text_parses_back(name: str) -> None:
    graph = states(**TWO)[name].graph
    verify(graph)
    assert parse_graph(graph_text(graph)) == graph


@pytest.mark.parametrize("name", PASS_NAMES)
def test_it_stops_after_the_pass_that_was_named(name: str) -> None:
    seen: list[str] = []
    state = compile_passes(
        tiny_manifest(), three_devices(), tiny_ask(**TWO), stop_after=name,
        observe=lambda passed, _: seen.append(passed),
    )  # fmt: skip
    assert seen[-1] == name
    assert (state.plan is not None) == (name == "freeze")
    assert (state.placement is not None) == (name not in ("build", "annotate"))


def test_a_pass_that_breaks_a_rule_is_caught_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_an_op(state: Compilation) -> Compilation:
        return replace(state, graph=replace(state.graph, ops=state.graph.ops[1:]))

    broken = (*PIPELINE[:2], replace(PIPELINE[1], name="place", run=lose_an_op))
    monkeypatch.setattr("plancc.compiler.pipeline.PIPELINE", broken)
    with pytest.raises(InvalidGraph, match="inputs_are_defined_before_use"):
        compile_passes(tiny_manifest(), three_devices(), tiny_ask())


def test_passes_change_nothing_in_place() -> None:
    seen = states(**TWO)
    assert all(op.seat is None for op in seen["annotate"].graph.ops)
    assert seen["place"].lowered is None
    assert seen["check"].graph == seen["lower"].graph


def test_build_makes_six_ops_a_layer_between_the_ends() -> None:
    graph = states(**TWO)["build"].graph
    assert len(graph.ops) == 6 * NUM_LAYERS + 4
    assert [op.kind for op in graph.ops[:4]] == [
        OpKind.EMBED, OpKind.NORM, OpKind.MIXER, OpKind.ADD
    ]  # fmt: skip


def test_a_layer_without_mlp_has_three_ops() -> None:
    model = build_manifest(build_model([build_layer(1000, kv=8)] * 2, max_context=64))
    graph = compile_passes(model, three_devices(), tiny_ask(), stop_after="build").graph
    assert [op.name for op in graph.ops] == [
        "embed", "l0.norm1", "l0.mixer", "l0.add1", "l1.norm1", "l1.mixer", "l1.add1", "final",
        "head", "sample",
    ]  # fmt: skip


@pytest.mark.parametrize(("dtype", "size"), [("float32", 256), ("float16", 128)])
def test_annotate_says_what_a_token_keeps_at_the_asked_cache_dtype(dtype: str, size: int) -> None:
    graph = states(**TWO, kv_dtype=dtype)["annotate"].graph
    kept = {op.attrs.kv_bytes_per_token for op in graph.ops if isinstance(op.attrs, MixerAttrs)}
    assert kept == {size}


def test_place_seats_every_layer_on_its_stage_and_the_end_with_the_head() -> None:
    graph = states(**TWO)["place"].graph
    stages = {op.attrs.layer: op.seat.stage for op in graph.ops
              if isinstance(op.attrs, MixerAttrs) and op.seat}  # fmt: skip
    assert stages == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
    assert {graph.by_name[name].seat for name in ("final", "head", "sample")} == {
        graph.by_name["l5.add2"].seat
    }


def plain(instructions: tuple[Instruction, ...]) -> list[dict[str, object]]:
    return [item.model_dump(mode="json") for item in instructions]


SHAPES: list[tuple[tuple[str, ...], tuple[int, ...], str]] = [
    (("d2",), (6,), "last"),
    (("d0", "d1"), (3, 6), "last"),
    (("d0", "d1"), (3, 6), "first"),
    (("d2", "d0", "d1"), (2, 4, 6), "last"),
    (("d2", "d0", "d1"), (2, 4, 6), "first"),
    (("d2", "d2"), (1, 6), "last"),
]


@pytest.mark.parametrize(("devices", "cuts", "head"), SHAPES)
def test_programs_and_links_follow_the_convention(
    devices: tuple[str, ...], cuts: tuple[int, ...], head: str
) -> None:
    """Against programs written by hand, rank by rank."""
    counts = tuple(end - first for first, end in zip((0, *cuts[:-1]), cuts, strict=True))
    lowered = states(devices=devices, stage_layers=counts, head=head)["lower"].lowered
    assert lowered is not None
    expected = hand_data(cuts, head=head)
    assert [plain(program.instructions) for program in lowered.programs] == [
        program["instructions"] for program in expected["programs"]
    ]
    assert [program.device for program in lowered.programs] == list(devices)
    ends = ("from", "to", "payload")
    assert [
        {key: link.model_dump(by_alias=True)[key] for key in ends} for link in lowered.links
    ] == [{key: link[key] for key in ends} for link in expected["links"]]


TRANSPORTS: list[tuple[tuple[str, ...], str, str, set[str]]] = [
    (("d0", "d1"), "host", "staged", {"staged", "local"}),
    (("d0", "d1"), "host", "p2p", {"p2p", "local"}),
    (("d0", "d1"), "device", "p2p", {"nccl", "gloo"}),
    (("d0", "d1"), "device", "network", {"gloo"}),
    (("d0", "d2"), "host", "staged", {"gloo"}),
    (("d2", "d2"), "host", "staged", {"local"}),
]


@pytest.mark.parametrize(("devices", "workers", "mode", "expected"), TRANSPORTS)
def test_transports_follow_processes_and_what_was_measured(
    devices: tuple[str, ...], workers: str, mode: str, expected: set[str]
) -> None:
    ask = tiny_ask(devices=devices, stage_layers=(3, 3), workers=workers)
    topology = three_devices(mode=mode)
    lowered = compile_passes(tiny_manifest(), topology, ask, stop_after="lower").lowered
    assert lowered is not None
    assert {link.transport for link in lowered.links} == expected


def test_segments_are_numbered_in_the_order_in_which_they_run() -> None:
    lowered = states(**{**TWO, "head": "first"})["lower"].lowered
    assert lowered is not None
    runs = [item for item in lowered.programs[0].instructions if isinstance(item, Run)]
    assert [(run.segment, run.layers, run.embed, run.head) for run in runs] == [
        (0, (0, 3), True, False),
        (1, (0, 0), False, True),
    ]


@pytest.mark.parametrize("name", PASS_NAMES[:4])
def test_the_text_after_a_pass_is_as_reviewed(
    name: str, golden: Callable[[str, str], None]
) -> None:
    golden(f"graph_after_{name}.txt", graph_text(states(**TWO)[name].graph))
