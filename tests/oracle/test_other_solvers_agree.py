"""Pipelines too large to try one by one: a dynamic program of the tests' own, and HiGHS.

Groups of more than four: equal devices, of which only numbers matter.

`PLANCC_SWEEP=1000 pytest tests/oracle/test_other_solvers_agree.py` asks twice as many of each, and
that many more, longer.
"""

import os
from collections.abc import Callable

import plancc_interval_mip
import plancc_subset_dp
import pytest
from plancc_chain_tables import ChainTables, random_chain_question
from plancc_equal_devices import EqualDevices, random_equal_question

from plancc.compiler.placement.place import place
from plancc.ir.errors import DoesNotFit

Oracle = Callable[[ChainTables], int | None]
PER_TEST = 10
HIGHS = plancc_interval_mip.least_latency
SHARE = 1 if "PLANCC_SWEEP" in os.environ else 4
HAS_SWEEP = pytest.mark.skipif("PLANCC_SWEEP" not in os.environ, reason="PLANCC_SWEEP: how many")


def difference(oracle: Oracle, seed: int, num_devices: int, num_layers: int) -> str | None:
    """What solver and oracle say otherwise of the best value, or None.

    HiGHS is asked for one home of the head: two would be two programs.
    """
    head = {"head": ("last", "first")[seed % 2]} if oracle is HIGHS else {}
    model, topology, ask = random_chain_question(seed, num_devices, num_layers, **head)
    expected = oracle(ChainTables(model, topology, ask))
    try:
        proof = place(model, topology, ask).proof
    except DoesNotFit:
        return None if expected is None else f"expected {expected}, found a refusal"
    found = (proof.best, proof.best_bound, proof.status)
    wanted = (expected, expected, "optimal")
    return None if found == wanted else f"expected {wanted}, found {found}"


def differences(oracle: Oracle, seeds: range, num_devices: int, layers: range) -> dict[int, str]:
    """{seed: what differs}; the number of layers goes through its range with the seed."""
    found = {seed: difference(oracle, seed, num_devices, layers[seed % len(layers)])
             for seed in seeds}  # fmt: skip
    return {seed: wrong for seed, wrong in found.items() if wrong is not None}


def chunks(count: int) -> list[range]:
    return [range(at, min(at + PER_TEST, count)) for at in range(0, count, PER_TEST)]


@pytest.mark.parametrize("seeds", chunks(200 // SHARE))
def test_a_subset_program_comes_to_the_same_value_on_eight_devices(seeds: range) -> None:
    assert differences(plancc_subset_dp.least_latency, seeds, 8, range(22, 29)) == {}


@pytest.mark.parametrize("seeds", chunks(50 // SHARE))
def test_highs_comes_to_the_same_value_of_forty_layers_on_six_devices(seeds: range) -> None:
    assert differences(HIGHS, seeds, 6, range(40, 41)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_groups_of_equal_devices_are_worth_what_trying_every_size_finds(seed: int) -> None:
    """Five to eight devices, groups of up to as many, up to twelve layers."""
    model, topology, ask = random_equal_question(seed)
    expected = EqualDevices(model, topology, ask).least_latency()
    assert expected is not None
    proof = place(model, topology, ask).proof
    assert (proof.best, proof.best_bound, proof.status) == (expected, expected, "optimal")


def test_both_oracles_come_to_the_same_value() -> None:
    for seed in range(1000, 1010):
        tables = ChainTables(*random_chain_question(seed, 4, 12))
        subset = plancc_subset_dp.least_latency(tables)
        assert subset == HIGHS(tables)


@HAS_SWEEP
def test_many_longer_pipelines_are_answered_alike() -> None:
    seeds = range(10**6, 10**6 + int(os.environ["PLANCC_SWEEP"]))
    assert differences(plancc_subset_dp.least_latency, seeds, 8, range(24, 49)) == {}
    few = seeds[: len(seeds) // 5]
    assert differences(HIGHS, few, 6, range(40, 61)) == {}
