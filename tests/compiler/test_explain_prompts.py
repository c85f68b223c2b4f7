"""What would change a plan whose objective counts prompts: rates of products decide it."""

from typing import Any

import pytest
from plancc_builders import build_device, build_topology
from plancc_examples import KIB, tiny_ask, tiny_manifest
from rich.console import Console

from plancc.compiler.api import compile
from plancc.compiler.explain_changed import changed
from plancc.compiler.explain_sensitivity import Effect, Sensitivity, sensitivity
from plancc.compiler.explain_variants import Part, Variant, variants
from plancc.compiler.render_sensitivity import sensitivity_parts
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

WORK = {"prompt": 48, "output": 4}


def machine(slow: float = 1.0) -> Topology:
    """d0 multiplies slowly and attends more slowly still; `slow` of its rates."""
    rates: list[dict[str, Any]] = [
        {"tflops": {"float32": 1e-3 * slow}, "attention_tflops": 1e-4 * slow},
        {"tflops": {"float32": 2e-3}, "matmul_points": ((1, 1e-3), (64, 2e-3))},
    ]
    rows = [build_device(f"d{i}", (900 + 100 * i) * KIB, gb_s=50.0, launch_us=2.0, **rate)
            for i, rate in enumerate(rates)]  # fmt: skip
    return build_topology(rows, name="two")


def planned(topology: Topology, **flags: Any) -> Plan:
    asked = {"tp": "off", "margin": 0.0, "prompt": 48, "objective": "prefill"} | flags
    return compile(tiny_manifest(), topology, tiny_ask(**asked))


def test_a_slower_rate_of_products_gives_what_compiling_with_it_gives() -> None:
    answer = sensitivity(planned(machine()), machine())
    rows = {row.change: row for row in answer.effects}
    row = rows["matmul and attention rate of d0 -10 %"]
    assert row.value is not None
    assert row.value > answer.value
    other = planned(machine(0.9)).provenance.solver.value
    assert row.value == pytest.approx(other, rel=1e-6)


def test_the_rate_that_costs_most_has_a_threshold() -> None:
    answer = sensitivity(planned(machine()), machine())
    assert any(row.what.startswith("matmul and attention rate of") for row in answer.thresholds)
    assert not any(row.what.startswith("read rate") for row in answer.thresholds)


@pytest.mark.parametrize(
    ("flags", "counts"),
    [({}, True), ({"objective": "latency"}, False), ({"objective": "throughput"}, False)],
)
def test_products_are_varied_where_prompts_count(flags: dict[str, Any], counts: bool) -> None:
    plan = planned(machine(), **flags)
    assert any("matmul" in one.words for one in variants(plan, machine())) == counts


def test_a_workload_varies_products_and_reads_of_each_device_in_turn() -> None:
    plan = compile(tiny_manifest(), machine(), tiny_ask(workload=WORK, margin=0.0))
    kinds = [one.part.kind for one in variants(plan, machine())]
    assert kinds[:6] == ["matmul", "matmul", "read", "read", "matmul", "matmul"]


def test_every_rate_of_products_changes_with_the_device_and_no_other_number() -> None:
    ask, model = tiny_ask().filled(256, "float32"), tiny_manifest().shape()
    for name in ("d0", "d1"):
        found = changed(machine(), ask, model, Variant(Part("matmul", (name,), ""), 0.5))
        assert found is not None
        for before, after in zip(machine().devices, found[0].devices, strict=True):
            factor = 0.5 if before.name == name else 1
            for rows in (1, 30, 64, 500):
                rate = before.matmul_tflops(rows, "float32")
                assert rate is not None
                assert after.matmul_tflops(rows, "float32") == pytest.approx(rate * factor)
            slow = before.attention_tflops
            assert after.attention_tflops == (None if slow is None else slow * factor)
            kept = {"tflops", "matmul_points", "attention_tflops"}
            assert before.model_dump(exclude=kept) == after.model_dump(exclude=kept)


def drawn(*effects: Effect) -> str:
    console = Console(width=100, record=True, file=None, quiet=False)
    answer = Sensitivity(10**6, 64, (), effects, (), ())
    with console.capture() as screen:
        for part in sensitivity_parts(answer, 100):
            console.print(part)
    return screen.get()


def test_a_table_without_rows_says_so_in_words() -> None:
    idle = Effect("slots x 2", 10**6, 10**6, None, None, None, None)
    words = drawn(idle)
    assert "nothing tried changes as much as 0.1 %" in words
    assert "which is" not in words
    assert "less than 0.1 %, same plan: slots x 2" in words


def test_a_table_with_rows_does_not() -> None:
    slower = Effect("slots x 2", 2 * 10**6, 2 * 10**6, None, None, None, None)
    assert "nothing tried" not in drawn(slower)
    assert "which is" in drawn(slower)
