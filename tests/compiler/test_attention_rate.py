"""What a topology says of a prompt's attention, in predictions and in the digest."""

import pytest
from plancc_builders import build_device, build_manifest, build_topology, llama_8b

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.ir.ask import Ask
from plancc.ir.topology import Topology

ASK = Ask(context=8192, prompt=8192, prefill_chunk=512)


def one_card(attention_tflops: float | None) -> Topology:
    return build_topology([build_device("card", 80.0, gb_s=4000.0, tflops={"bfloat16": 560.0},
                                        attention_tflops=attention_tflops)])  # fmt: skip


@pytest.mark.parametrize(("tflops", "counted"), [(None, 560), (1000, 560), (280, 280)])
def test_attention_counts_at_the_slower_rate(tflops: float | None, counted: int) -> None:
    """A chunk of 512 rows over 4,096.5 keys in the mean, 32 heads of 128: 34.4 GFLOP a layer."""
    found = compile(build_manifest(llama_8b()), one_card(tflops), ASK)
    assert check_plan(found, build_manifest(llama_8b()), one_card(tflops)) == ()
    assert found.predicted.prefill is not None
    products_ns = 512 * (83902464 + 352321536) / 560e3
    attention_ns = 512 * 4096.5 * 4 * 32 * 128 / (counted * 1e3)
    expected = 16 * 32 * (products_ns + attention_ns)
    assert found.predicted.prefill.total_ns == pytest.approx(expected, rel=1e-5)


def test_a_file_that_says_nothing_of_attention_has_the_digest_that_it_had() -> None:
    data = one_card(None).model_dump(mode="json", by_alias=True)
    assert all("attention_tflops" not in device for device in data["devices"])
    assert one_card(280).digest() != one_card(None).digest()
