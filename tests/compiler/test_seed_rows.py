"""Reported measurements of split models: every row to be predicted is, within its tolerance."""

import re

import plancc_seed_calibrate
import plancc_seed_table
import pytest
from plancc_seed_predict import predictions
from plancc_seed_systems import SEEDS, Row, machine, mlp_only_tp, pipeline, step_ns, systems

from plancc.compiler.cost.compute import Work
from plancc.compiler.cost.full_tp import full_tp_step_ns
from plancc.ir.topology import Topology

ROWS = [(name, row) for name, system in systems().items() for row in system.chosen("predict")]


@pytest.mark.parametrize(("system", "row"), ROWS, ids=lambda x: getattr(x, "name", x))
def test_a_reported_value_is_predicted_within_its_tolerance(system: str, row: Row) -> None:
    said = predictions(system)[row.name]
    if isinstance(row.value, bool | str):
        assert said == row.value
    else:
        assert row.within > 0, "a number without a tolerance holds nothing"
        assert said == pytest.approx(row.value, rel=row.within)


def test_every_row_but_the_given_ones_is_answered() -> None:
    for name, system in systems().items():
        asked = {row.name for row in system.rows if row.role != "given"}
        assert set(predictions(name)) == asked


def test_read_rates_in_the_machines_are_those_that_the_given_rows_calibrate() -> None:
    rates = plancc_seed_calibrate.calibrated()
    cards = {"2x3090": ["RTX 3090"] * 2, "2x3090-x4": ["RTX 3090"] * 2,
             "magnitude-2x3090": ["RTX 3090"] * 2, "2xa4000": ["RTX A4000"] * 2,
             "2x2-a40": ["A40"] * 4, "4060ti-5080": ["RTX 4060 Ti", "RTX 5080"]}  # fmt: skip
    assert {path.name.removesuffix(".topo.yaml") for path in SEEDS.glob("*.topo.yaml")} == set(
        cards
    )
    for name, kinds in cards.items():
        found = [device.read_gb_s for device in machine(name).devices]
        assert found == [rates[kind] for kind in kinds], name


def test_calibration_refuses_a_row_that_is_to_be_predicted() -> None:
    row = Row("predict", "decode_one_card_tok_s", 48.5)
    with pytest.raises(AssertionError, match="not to calibrate with"):
        plancc_seed_calibrate.rate_of_3090([row])


@pytest.mark.parametrize("gb_s", [100.0, 389.0, 761.6, 4571.0])
def test_calibration_finds_the_rate_that_made_the_tokens(gb_s: float) -> None:
    model, topology = systems()["ninfer-27b-2xa4000"].model, machine("2xa4000")
    stages = pipeline(model, {"gpu0": 20, "gpu1": 44}, head="first")
    fast = plancc_seed_calibrate.at_rate(topology, gb_s)
    tok_s = 1e9 / step_ns(model, fast, stages)
    found = plancc_seed_calibrate.read_rate(model, topology, stages, tok_s)
    assert found == pytest.approx(gb_s, rel=1e-4)  # terms are whole ns


def test_a_calibrated_machine_makes_the_tokens_that_were_given() -> None:
    model = systems()["ninfer-27b-2x3090"].model
    one = pipeline(model, {"gpu0": 64}, head="last")
    assert 1e9 / step_ns(model, machine("2x3090"), one) == pytest.approx(46.9, rel=1e-3)
    two = pipeline(model, {"gpu0": 32, "gpu1": 32}, head="first")
    assert 1e9 / step_ns(model, machine("2xa4000"), two) == pytest.approx(24.1, rel=1e-3)


def test_the_27b_weighs_what_its_report_says() -> None:
    model = systems()["ninfer-27b-2x3090"].model
    layers = sum(layer.weight_bytes for layer in model.layers)
    mlps = sum(layer.mlp.weight_bytes for layer in model.layers if layer.mlp)
    whole = layers + sum(block.weight_bytes for block in model.blocks)
    assert whole / 2**30 == pytest.approx(15.3, rel=1e-4)
    assert mlps / whole == pytest.approx(0.64, rel=1e-4)


def test_full_tp_is_the_sum_that_its_docstring_states() -> None:
    """By hand: half of what is read, twice 64 exchanges, launches of 1 us."""
    model, topology = systems()["ninfer-27b-2x3090"].model, machine("2x3090")
    read = sum(layer.weight_bytes + 2 * layer.state_bytes_per_slot for layer in model.layers)
    read += int(0.7 * 2**30) + 16 * 100 * 2176
    rate = topology.devices[0].read_gb_s
    assert rate is not None
    by_hand = read / 2 / rate + 128 * 27_000 + (64 * (5 + 2) + 3) * 1000
    priced = full_tp_step_ns(model, topology, ("gpu0", "gpu1"), Work(1, 100, model.dtype))
    assert priced == pytest.approx(by_hand, abs=400)  # terms are rounded up


def test_a_slower_exchange_costs_full_tp_twice_what_it_costs_a_cut_mlp() -> None:
    model, fast, slow = (
        systems()["ninfer-27b-2x3090"].model,
        machine("2x3090"),
        machine("2x3090-x4"),
    )
    more_ns = round(1e3 * (_one_row_us(slow) - _one_row_us(fast)))
    work = Work(1, 256, model.dtype)
    full = [full_tp_step_ns(model, topology, ("gpu0", "gpu1"), work) for topology in (fast, slow)]
    assert full[1] - full[0] == 128 * more_ns
    shapes = [step_ns(model, topology, mlp_only_tp(model, topology)) for topology in (fast, slow)]
    spread = round(1e3 * (slow.links[0].curve().us(20480) - fast.links[0].curve().us(20480)))
    assert shapes[1] - shapes[0] == 64 * more_ns + spread


def test_rows_name_each_fact_once_and_say_what_it_is_for() -> None:
    for system in systems().values():
        names = [row.name for row in system.rows]
        assert len(names) == len(set(names))
        assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)


def test_wherever_a_measured_row_is_missed_by_far_the_page_says_why() -> None:
    for name, system in systems().items():
        for row in system.chosen("measured"):
            far = plancc_seed_table.off(row, predictions(name)[row.name])
            if far is None or abs(far) > 2 * plancc_seed_table.CLOSE:
                assert plancc_seed_table.reason(name, row), (name, row.name, far)


def test_the_page_of_the_seeds_is_what_its_command_writes() -> None:
    assert (SEEDS / "README.md").read_text(encoding="utf-8") == plancc_seed_table.text()


def _one_row_us(topology: Topology) -> float:
    (exchange,) = topology.exchanges
    return exchange.curve().us(20480)
