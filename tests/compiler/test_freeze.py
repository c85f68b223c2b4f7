"""The plan document: what it repeats, what it sums, what must stay out of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from plancc_builders import build_device, build_topology
from plancc_examples import three_devices, tiny_ask, tiny_manifest, tiny_plan

from plancc.compiler.api import compile
from plancc.compiler.freeze import portable_source
from plancc.compiler.links import workers_of
from plancc.ir.errors import BadInput
from plancc.ir.plan import Plan, read_plan

TWO = {"devices": ("d0", "d1"), "stage_layers": (3, 3), "head": "last"}


def test_a_plan_reads_back_as_itself(tmp_path: Path) -> None:
    plan = tiny_plan(**TWO)
    path = tmp_path / "a.plan.json"
    path.write_text(plan.to_json())
    again = read_plan(path)
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert again.computed_digest() == plan.digest


def test_every_flag_is_recorded_with_its_default() -> None:
    asked = tiny_plan(**TWO).ask
    assert (asked.context, asked.prompt, asked.kv_dtype) == (64, 64, "float32")
    assert (asked.stage_layers, asked.margin, asked.tp) == ((3, 3), 0.03, "auto")


def test_inputs_are_named_by_their_digests() -> None:
    plan = tiny_plan(**TWO)
    assert plan.inputs.model.sha256 == tiny_manifest().digest()
    assert plan.inputs.topology.sha256 == three_devices().digest()
    assert plan.model == tiny_manifest().shape()


def test_only_devices_with_a_rank_are_listed_in_the_topology_s_order() -> None:
    plan = tiny_plan(devices=("d1", "d0"), stage_layers=(3, 3))
    assert [device.name for device in plan.devices] == ["d0", "d1"]
    assert [stage.ranks[0].device for stage in plan.stages] == ["d1", "d0"]


@pytest.mark.parametrize(("context", "slots", "pages"), [(64, 1, 4), (65, 1, 5), (50, 3, 12)])
def test_every_slot_has_whole_pages(context: int, slots: int, pages: int) -> None:
    plan = tiny_plan(devices=("d2",), context=context, slots=slots)
    assert (plan.runtime.pages, plan.runtime.page_tokens) == (pages, 16)


def test_weights_are_named_by_the_fingerprint_of_their_index() -> None:
    weights = tiny_plan(**TWO).weights
    index = tiny_manifest().weights
    assert weights is not None
    assert index is not None
    assert (weights.sha256, weights.fingerprint) == (index.digest(), "sampled")
    assert weights.source == "weights/tiny"


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("../weights/x", "../weights/x"),
        ("weights", "weights"),
        (None, None),
        ("/home/me/weights", None),
        ("~/weights", None),
        ("C:\\weights", None),
        ("\\\\host\\weights", None),
    ],
)
def test_a_source_that_names_this_machine_stays_out(source: str | None, kept: str | None) -> None:
    assert portable_source(source) == kept


def test_no_path_of_this_machine_is_in_a_plan() -> None:
    manifest = tiny_manifest(source="/data/weights/tiny")
    text = compile(manifest, three_devices(), tiny_ask(**TWO)).to_json()
    assert "/data" not in text
    assert str(Path.cwd()) not in text


def test_the_source_of_the_weights_changes_nothing_else() -> None:
    here, there = (compile(tiny_manifest(source=source), three_devices(), tiny_ask(**TWO))
                   for source in ("a", "b"))  # fmt: skip
    before, after = here.data(), there.data()
    assert {key for key in before if before[key] != after[key]} == {"weights", "digest"}


def named(*devices: tuple[str, str, str, int | None]) -> list[object]:
    return [
        build_device(name, 1.0, host=host, kind=kind, threads=threads)
        for name, host, kind, threads in devices
    ]


MIXED = (
    ("g0", "h0", "cuda", None),
    ("g1", "h0", "cuda", None),
    ("c0", "h0", "cpu", 2),
    ("c1", "h0", "cpu", 1),
    ("g2", "h1", "cuda", None),
    ("r0", "h0", "rocm", None),
)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("host", {"h0.w0": ("g0", "g1"), "h0.w1": ("c0",), "h0.w2": ("c1",), "h0.w3": ("r0",),
                  "h1.w0": ("g2",)}),
        ("device", {"h0.w0": ("g0",), "h0.w1": ("g1",), "h0.w2": ("c0",), "h0.w3": ("c1",),
                    "h0.w4": ("r0",), "h1.w0": ("g2",)}),
    ],
)  # fmt: skip
def test_devices_of_a_host_and_kind_share_a_process_unless_they_count_threads(
    rule: str, expected: dict[str, tuple[str, ...]]
) -> None:
    workers = workers_of(named(*MIXED), rule)  # type: ignore[arg-type]
    assert {worker.name: worker.devices for worker in workers} == expected
    threads = {worker.devices: worker.threads for worker in workers}
    assert (threads[("c0",)], threads[("c1",)]) == (2, 1)


def test_addresses_are_those_of_the_hosts_in_use() -> None:
    devices = [build_device("a", 1.0), build_device("b", 1.0, host="h1")]
    topology = build_topology(devices)
    plan = compile(tiny_manifest(), topology, tiny_ask(devices=("b",)))
    assert [host.name for host in plan.runtime.hosts] == ["h1"]


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({"without": ("eyes",)}, "--without eyes: tiny has blocks embed, head"),
        ({"without": ("head",)}, "--without head: tiny cannot run without it"),
        ({"pin": {"eyes": "d0"}}, "--pin eyes=d0: tiny has blocks embed, head"),
        ({"context": 257}, "--context 257: tiny goes up to 256"),
        ({"context": 64, "prompt": 65}, "--prompt 65: longer than the context, 64"),
    ],
)
def test_an_ask_for_what_does_not_exist_is_refused(flags: dict[str, object], found: str) -> None:
    with pytest.raises(BadInput) as error:
        tiny_plan(**flags)
    assert found in str(error.value)


def test_a_whole_plan_is_as_reviewed(golden: Callable[[str, str], None]) -> None:
    """Without what solved it and what it says of other shapes: places, bytes and times stay."""
    data = tiny_plan(**TWO).data()
    for name in ("name", "version", "space"):
        data["provenance"]["solver"][name] = "..."
    data["digest"], data["alternatives"] = "...", []
    golden("tiny.plan.json", Plan.model_validate(data).to_json())
    json.loads(Plan.model_validate(data).to_json())
