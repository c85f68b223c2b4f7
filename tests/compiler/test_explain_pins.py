"""What pins cost: one row of the plan, one line on stderr, and nothing where nothing is pinned."""

import pytest
from plancc_builders import build_device, build_topology
from plancc_examples import KIB, three_devices, tiny_ask, tiny_manifest
from plancc_hand_plans import hand_plan

from plancc.compiler.api import compile
from plancc.compiler.explain_words import pins_sentence
from plancc.compiler.pins import pins_of, pins_said, row_of_pins
from plancc.compiler.summary import pins_data
from plancc.ir.ask import Ask
from plancc.ir.plan import Alternative, Plan
from plancc.ir.units import format_bytes


def planned(**flags: object) -> Plan:
    return compile(tiny_manifest(), three_devices(), tiny_ask(margin=0.0, **flags))


def row(plan: Plan) -> Alternative:
    found = row_of_pins(plan)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "flags",
    [{"stage_layers": (2, 4)}, {"devices": ("d0", "d2")}, {"head": "first"}, {"max_devices": 1},
     {"devices": ("d2", "d0"), "stage_layers": (5, 1)}, {"pin": {"embed": "d2"}}],
)  # fmt: skip
@pytest.mark.parametrize("objective", ["latency", "prefill", "context"])
def test_the_row_has_the_value_of_the_plan_without_the_pins(
    flags: dict[str, object], objective: str
) -> None:
    free, pinned = planned(objective=objective), planned(objective=objective, **flags)
    found = row(pinned)
    assert found.value == free.provenance.solver.value
    assert (found.verdict == "chosen") == (free.stages == pinned.stages)
    assert found.shape == f"without {', '.join(pins_of(pinned.ask))}"
    sign = -1 if objective == "context" else 1
    assert sign * (pinned.provenance.solver.value - found.value) >= 0


def test_a_plan_without_pins_has_no_such_row() -> None:
    plan = planned()
    assert pins_of(plan.ask) == ()
    assert row_of_pins(plan) is None
    assert pins_sentence(plan) is None
    assert pins_data(plan) is None


def test_a_plan_with_pins_is_still_sound_and_has_its_own_digest() -> None:
    from plancc.compiler.check import check_plan

    plan = planned(stage_layers=(2, 4))
    assert plan.digest == plan.computed_digest()
    assert check_plan(plan, tiny_manifest(), three_devices()) == ()


def test_the_sentence_says_cost_free_shape_and_what_is_left() -> None:
    plan = planned(devices=("d2", "d0"), stage_layers=(5, 1))
    free = planned()
    delta = plan.provenance.solver.value - free.provenance.solver.value
    words = pins_sentence(plan)
    assert words is not None
    assert words.startswith("--devices d2,d0 --stage-layers 5,1 cost +")
    assert f"({100 * delta / free.provenance.solver.value:+.1f} %)" in words
    for stage in free.stages:
        assert stage.ranks[0].device in words
    tightest = min(plan.devices, key=lambda device: device.ledger.free_after)
    assert f"; with, {tightest.name} keeps {format_bytes(tightest.ledger.free_after)}" in words


def test_pins_that_change_nothing_cost_nothing() -> None:
    free = planned()
    names = tuple(stage.ranks[0].device for stage in free.stages)
    words = pins_sentence(planned(devices=names))
    assert words == f"--devices {','.join(names)} costs nothing: without, the choice is the same"


def test_the_numbers_are_there_for_programs() -> None:
    plan = planned(stage_layers=(2, 4))
    data = pins_data(plan)
    assert data is not None
    assert data["flags"] == ["--stage-layers"]
    assert data["costs"] == data["value"] - data["free_value"]


def test_a_free_choice_that_lacks_a_number_is_said_not_to_be_solved() -> None:
    """Only the pinned devices have a matmul rate, so prefill cannot be solved over all."""
    rates = {"tflops": {"float32": 1.0}, "launch_us": 2.0}
    topology = build_topology([build_device("d0", 1100 * KIB, **rates),
                               build_device("d1", 1100 * KIB, **rates),
                               build_device("d2", 2600 * KIB)])  # fmt: skip
    ask = tiny_ask(objective="prefill", devices=("d0", "d1"))
    plan = compile(tiny_manifest(), topology, ask)
    assert row_of_pins(plan) is None
    assert (
        pins_sentence(plan)
        == "--devices d0,d1: the choice without was not solved; explain --topo does"
    )


def test_a_faster_pin_says_that_the_margin_chose_smaller() -> None:
    note = {"verdict": "not allowed", "value": 1020, "note": "d0 0..9"}
    plan = hand_plan(ask={"context": 128, "prompt": 128, "kv_dtype": "bfloat16",
                          "max_devices": 3},
                     alternatives=[{"shape": "without --max-devices", **note}])  # fmt: skip
    words = pins_sentence(plan)
    assert words is not None
    assert (
        "costs -0.0 us (-2.0 %): without, 1.0 us as d0 0..9 (smaller, within the margin)" in words
    )


def test_flags_are_said_as_they_may_be_typed() -> None:
    ask = Ask(pin={"head": "d1"}, stage_layers=(3, 3), tp="off", max_devices=2)
    assert pins_said(ask) == "--max-devices 2 --stage-layers 3,3 --tp off --pin head=d1"
