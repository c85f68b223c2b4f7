"""A device that computes prompts by whole blocks of rows, in predictions and in the digest."""

import pytest
from plancc_builders import build_device, build_manifest, build_topology, llama_8b

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.ir.ask import Ask
from plancc.ir.topology import Topology


def one_card(row_block: int | None, **fields: object) -> Topology:
    return build_topology([build_device("card", 80.0, gb_s=4000.0, tflops={"bfloat16": 40.0},
                                        row_block=row_block, **fields)])  # fmt: skip


def prefill_ns(topology: Topology, prompt: int) -> int:
    ask = Ask(context=1024, prompt=prompt, prefill_chunk=512)
    found = compile(build_manifest(llama_8b()), topology, ask)
    assert check_plan(found, build_manifest(llama_8b()), topology) == ()
    assert found.predicted.prefill is not None
    return found.predicted.prefill.total_ns


@pytest.mark.parametrize(("prompt", "computed"), [(64, 64), (65, 128), (130, 192), (192, 192)])
def test_rows_that_fill_the_last_block_up_are_computed_too(prompt: int, computed: int) -> None:
    """Products of the computed rows; attention of those that count, over their own keys."""
    products_ns = computed * (83902464 + 352321536) / 40e3
    attention_ns = prompt * (prompt + 1) / 2 * 4 * 32 * 128 / 40e3
    expected = 32 * (products_ns + attention_ns)
    assert prefill_ns(one_card(64), prompt) == pytest.approx(expected, rel=1e-5)


def test_a_device_that_says_no_block_computes_the_rows_that_count() -> None:
    assert prefill_ns(one_card(None), 130) == prefill_ns(one_card(1), 130)
    assert prefill_ns(one_card(None), 130) < prefill_ns(one_card(64), 130)


def test_few_rows_are_computed_at_the_rate_of_a_block() -> None:
    """Which is the first that was measured; by themselves they would count as decode rows."""
    rates = {"matmul_points": [(64, 40.0), (512, 50.0)]}
    assert prefill_ns(one_card(64, **rates), 10) > 0.99 * prefill_ns(one_card(64, **rates), 60)
    assert prefill_ns(one_card(None, **rates), 10) < 0.5 * prefill_ns(one_card(64, **rates), 10)


def test_a_file_that_says_no_block_has_the_digest_that_it_had() -> None:
    data = one_card(None).model_dump(mode="json", by_alias=True)
    assert all("row_block" not in device for device in data["devices"])
    assert one_card(64).digest() != one_card(None).digest()
