"""A stated workload: what it is worth, what it changes, how it is said, and what it refuses."""

from io import StringIO
from typing import Any

import pytest
from plancc_builders import (
    GIB,
    build_device,
    build_layer,
    build_model,
    build_topology,
)
from plancc_cuts import placed, refused, stages_of
from plancc_edits import more, put
from plancc_examples import three_devices, tiny_ask, tiny_manifest, tiny_plan
from plancc_hand_plans import restamp
from pydantic import ValidationError
from rich.console import Console

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.compiler.diff import diff_plans
from plancc.compiler.explain import explain
from plancc.compiler.explain_sensitivity import sensitivity
from plancc.compiler.render_explain import show_explanation
from plancc.compiler.render_show import show_plan
from plancc.compiler.summary import summary_data, summary_lines
from plancc.ir.ask import Ask, Workload
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

PROMPTS = Workload(prompt=4000, output=10)
OUTPUTS = Workload(prompt=40, output=4000)
LAYER = 500_000_000  # bytes


def toy(count: int = 8) -> ModelShape:
    return build_model([build_layer(LAYER)] * count, hidden_size=1024)


def unlike_pair(layers_that_fit: int) -> Topology:
    """`math` multiplies four times as fast, `memory` reads four times as fast."""
    size = layers_that_fit * LAYER + LAYER // 2
    rates: tuple[dict[str, Any], ...] = (
        {"gb_s": 250.0, "tflops": {"bfloat16": 200}},
        {"gb_s": 1000.0, "tflops": {"bfloat16": 50}},
    )
    named = zip(("math", "memory"), rates, strict=True)
    return build_topology([build_device(name, size, launch_us=0.0, **fields)
                           for name, fields in named])  # fmt: skip


@pytest.mark.parametrize(("work", "device"), [(PROMPTS, "math"), (OUTPUTS, "memory")])
def test_long_prompts_and_long_answers_choose_other_devices(work: Workload, device: str) -> None:
    found = placed(toy(), unlike_pair(8), workload=work, max_devices=1)
    assert stages_of(found) == [(device, 0, 8)]
    assert found.proof.objective == "workload"


def test_long_prompts_and_long_answers_cut_one_machine_elsewhere() -> None:
    """Six of eight layers fit on either: the device that suits the work has the six."""
    for work, device in ((PROMPTS, "math"), (OUTPUTS, "memory")):
        stages = stages_of(placed(toy(), unlike_pair(6), workload=work))
        assert {name: end - first for name, first, end in stages}[device] == 6


def test_a_mix_is_not_what_either_half_alone_would_choose() -> None:
    """Neither the best prefill nor the best step is the best of both."""
    model, pair = toy(), unlike_pair(7)
    work = Workload(prompt=512, output=6)
    cuts = [stages_of(placed(model, pair, margin=0.0, **flags)) for flags in (
        {"workload": work, "context": 1024},
        {"objective": "prefill", "prompt": 512, "tp": "off", "context": 1024},
        {"objective": "latency", "tp": "off", "context": 1024},
    )]  # fmt: skip
    assert cuts[0] not in cuts[1:], cuts


def test_the_value_is_a_prompt_and_a_round_for_each_token() -> None:
    """Two layers of 500 MB on each of two equal cards, by hand.

    A token reads a layer in 1 ms, and the rows of two streams hop one by one in 20 us. A chunk of
    500 rows multiplies a layer in 2 x 250e6 x 500 / 50e12 s = 5 ms.
    """
    cards = [build_device(name, 2 * LAYER + GIB // 8, gb_s=500.0, launch_us=0.0,
                          tflops={"bfloat16": 50}) for name in ("A", "B")]  # fmt: skip
    machine = build_topology(cards, latency_us=20.0, gb_s=1e6)
    work = Workload(prompt=1500, output=100, streams=2)
    found = placed(toy(4), machine, workload=work, prefill_chunk=500, context=2048)
    assert stages_of(found) == [("A", 0, 2), ("B", 2, 4)]
    beats, beat = 3 + 2 - 1, 10_000_000
    step = 2 * 2_000_000 + 2 * 20_000
    assert found.proof.value == pytest.approx(beats * beat + 100 * step, rel=1e-5)


def test_more_streams_than_stages_share_the_steps_of_a_round() -> None:
    """Four streams over two stages: two rows a step, and two steps in flight."""
    model, machine = toy(4), unlike_pair(3)
    asked = {"tp": "off", "margin": 0.0, "context": 2048}
    four = placed(model, machine, workload=Workload(prompt=1, output=1000, streams=4), **asked)
    rounds = placed(model, machine, objective="throughput", slots=4, **asked)
    assert four.proof.value / 1000 == pytest.approx(rounds.proof.value, rel=0.01)


def workload_plan(**flags: Any) -> Plan:
    work = {"prompt": 40, "output": 20, "streams": 2} | flags.pop("work", {})
    return tiny_plan(workload=Workload(**work), **flags)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"prompt": 30},
        {"slots": 3},
        {"devices": ("d2",)},
        {"work": {"streams": 1}},
        {"devices": ("d2", "d0", "d1"), "stage_layers": (2, 2, 2)},
    ],
)
def test_check_comes_to_the_same_value(flags: dict[str, Any]) -> None:
    plan = workload_plan(**flags)
    assert plan.provenance.solver.value > 20 * plan.predicted.decode.step_ns / 2
    assert check_plan(plan, tiny_manifest(), three_devices()) == ()


@pytest.mark.parametrize("key", ["value", "best"])
def test_check_names_another_value(key: str) -> None:
    data = workload_plan().data()
    put("provenance", "solver", key, value=more(1 if key == "best" else -1))(data)
    found = check_plan(restamp(Plan.model_validate(data)), tiny_manifest(), three_devices())
    assert any(f"provenance.solver.{key}" in problem for problem in found)


def test_another_workload_is_another_value() -> None:
    data = workload_plan().data()
    put("ask", "workload", "output", value=21)(data)
    found = check_plan(restamp(Plan.model_validate(data)), tiny_manifest(), three_devices())
    assert any("provenance.solver.value: recomputed" in problem for problem in found)


def screen(show: Any, *what: Any) -> str:
    console = Console(file=StringIO(), width=200)
    show(*what, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_plans_say_what_a_request_takes() -> None:
    plan = workload_plan()
    words = f"{plan.provenance.solver.value / 1e6:.2f} ms a request of 40 + 20 tokens, 2 at once"
    assert words in summary_lines(plan, None)[2]
    assert summary_data(plan)["workload"] == {"prompt": 40, "output": 20, "streams": 2}
    assert words in screen(show_plan, plan)
    told = screen(show_explanation, plan, explain(plan))
    assert "objective workload: a request of 40 + 20 tokens, 2 at once" in told
    assert f"{words}: " in told
    assert "for its prompt, 20 x " in told
    assert "no TP" in told
    assert "not searched for --workload" in told


def test_sensitivity_prices_and_solves_requests() -> None:
    plan = workload_plan()
    answer = sensitivity(plan, three_devices())
    assert answer.value == plan.provenance.solver.value
    slower = next(row for row in answer.effects if "read rate of d0 -10 %" in row.change)
    assert slower.kept_value is not None
    assert slower.kept_value > answer.value


def test_a_diff_names_the_workload_and_what_became_of_it() -> None:
    one, two = workload_plan(), workload_plan(work={"output": 24})
    asked = dict((part.title, part.lines) for part in diff_plans(one, two).sections)["asked"]
    before, after = "prompt=40,output=20,streams=2", "prompt=40,output=24,streams=2"
    assert asked == (f"--workload {before} -> {after}",)
    moved = workload_plan(devices=("d2",))
    times = dict((part.title, part.lines) for part in diff_plans(one, moved).sections)["predicted"]
    assert times[0].startswith("workload ")
    assert "a request of 40 + 20 tokens, 2 at once" in times[0]


def test_a_workload_fills_slots_prompt_and_objective() -> None:
    ask = Ask(workload=Workload(prompt=2000, output=500, streams=4)).filled(8192, "bfloat16")
    assert (ask.objective, ask.slots, ask.prompt) == ("workload", 4, 2000)
    assert Ask.model_validate(ask.model_dump()) == ask
    more_slots = Ask(workload=Workload(prompt=9, output=9, streams=4), slots=6, prompt=7)
    assert (more_slots.slots, more_slots.filled(8192, "bfloat16").prompt) == (6, 7)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"objective": "throughput"}, "--objective throughput: --workload is an objective itself"),
        ({"slots": 3}, "--slots 3: --workload states 4 streams, and each needs a slot"),
        ({"workload": None, "objective": "workload"}, "--objective workload: state one by"),
    ],
)
def test_flags_that_contradict_a_workload_are_refused(flags: dict[str, Any], said: str) -> None:
    work = {"workload": {"prompt": 10, "output": 10, "streams": 4}}
    with pytest.raises(ValidationError, match=said):
        Ask.model_validate(work | flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tp": 2}, r"--tp 2: --workload places pipelines only"),
        ({"devices": ("math", "math")}, r"--workload: --devices names a device twice"),
    ],
)
def test_what_is_not_searched_for_a_workload_is_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        placed(toy(2), unlike_pair(8), workload=PROMPTS, **flags)


def test_too_many_unlike_devices_are_refused() -> None:
    cards = [build_device(f"g{n:02}", LAYER * 2, gb_s=500.0 + n, tflops={"bfloat16": 50})
             for n in range(11)]  # fmt: skip
    with pytest.raises(BadInput, match=r"--workload: 11 unlike devices are too many to search"):
        placed(toy(4), build_topology(cards), workload=PROMPTS)
    ordered = tuple(card.name for card in cards)
    found = placed(toy(4), build_topology(cards), workload=PROMPTS, devices=ordered)
    assert found.proof.status == "optimal"


def test_a_workload_needs_matmul_rates() -> None:
    cards = [build_device("A", 8.0, tflops={"bfloat16": 50}), build_device("B", 8.0)]
    with pytest.raises(BadInput, match=r"--workload: device B has no tflops for bfloat16"):
        placed(toy(2), build_topology(cards), workload=PROMPTS)


def test_a_refusal_offers_only_what_the_requests_have_room_in() -> None:
    """At 3,000 tokens and two slots it fits, at 1,500 and three; no less can be of use."""
    model = build_model([build_layer(LAYER, kv=100_000)] * 2, hidden_size=64)
    flags: dict[str, Any] = {"context": 4000, "slots": 3, "prefill_chunk": 16}
    machine = build_topology([build_device("A", 2 * LAYER + 1_300_000_000, gb_s=500.0,
                                           tflops={"bfloat16": 50})])  # fmt: skip
    short, long = Workload(prompt=500, output=500), Workload(prompt=3000, output=500)
    assert 1000 <= refused(model, machine, workload=short, **flags).report["largest"]["context"]
    both = refused(model, machine, workload=long, **flags).report["largest"]
    assert (both["context"], both["slots"]) == (None, 1)
    many = Workload(prompt=3000, output=500, streams=3)
    assert refused(model, machine, workload=many, **flags).report["largest"]["slots"] is None


def test_a_request_must_go_into_a_slot() -> None:
    ask = tiny_ask(workload=Workload(prompt=40, output=25))
    with pytest.raises(BadInput, match=r"output=25,streams=1: 65 tokens are more than .* 64"):
        compile(tiny_manifest(), three_devices(), ask)
