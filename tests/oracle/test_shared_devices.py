"""Seats that share a device take turns on it: the solver and the checker against all placements."""

from itertools import pairwise

import pytest
from plancc_bruteforce import BruteForce, Candidate
from plancc_bruteforce_bytes import Group
from plancc_builders import build_ask, build_device, build_manifest, build_model, build_topology
from plancc_random_seats import random_seat_question
from plancc_shape_words import candidate_of, lowered_plan

from plancc.compiler.api import compile
from plancc.compiler.check import check_plan
from plancc.compiler.placement.place import place
from plancc.ir.errors import BadInput, DoesNotFit
from plancc.ir.layers import Layer
from plancc.ir.topology import Topology

OBJECTIVES = ("latency", "prefill", "throughput")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_solver_finds_what_trying_every_cut_of_the_seats_finds(objective: str) -> None:
    found = 0
    for seed in range(40):
        model, topology, ask = random_seat_question(seed, objective)
        oracle = BruteForce(model, topology, ask)
        best = oracle.best()
        try:
            placement = place(model, topology, ask)
        except (BadInput, DoesNotFit):
            assert best is None, seed
            continue
        assert best is not None, seed
        least, preferred = best
        assert (placement.proof.best, placement.proof.value) == (least, preferred.value), seed
        assert candidate_of(oracle, placement) == preferred.candidate, seed
        found += 1
    assert found >= 20


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_checker_comes_to_the_same_value(objective: str) -> None:
    found = 0
    for seed in range(40):
        model, topology, ask = random_seat_question(seed, objective)
        manifest = build_manifest(model)
        try:
            plan = compile(manifest, topology, ask)
        except (BadInput, DoesNotFit):
            continue
        assert check_plan(plan, manifest, topology) == (), seed
        found += 1
    assert found >= 15


def one_card(**fields: object) -> Topology:
    """A byte takes a ns to read, a launch 1 us; a prompt row's FLOP a ns in a thousand."""
    return build_topology([build_device("gpu0", 10**9, gb_s=1.0, launch_us=1.0,
                                        tflops={"bfloat16": 1.0}, **fields)])  # fmt: skip


def layers(count: int) -> list[Layer]:
    mixer = {"kind": "attention", "weight_bytes": 10**6, "kv_bytes_per_token": 0}
    return [Layer.model_validate({"mixer": mixer})] * count


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_a_prompt_takes_one_card_as_long_whether_in_one_stage_or_in_several(seats: int) -> None:
    model = build_model(layers(6))
    ask = build_ask(model, context=4096, prompt=4096, prefill_chunk=512, objective="prefill",
                    devices=("gpu0",) * seats, tp="off")  # fmt: skip
    plan = compile(build_manifest(model), one_card(), ask)
    assert len(plan.stages) == seats
    prefill = plan.predicted.prefill
    assert prefill is not None
    busy = sum(time.compute_ns + time.exchange_ns for time in prefill.stages)
    assert prefill.total_ns == 8 * busy
    assert busy == 6 * (1_000_000 + 3 * 1000)


def test_streams_in_two_seats_of_a_card_wait_for_each_other() -> None:
    model = build_model(layers(4))
    ask = build_ask(model, context=64, slots=2, objective="throughput", tp="off",
                    devices=("gpu0", "gpu0"))  # fmt: skip
    plan = compile(build_manifest(model), one_card(), ask)
    assert plan.provenance.solver.value == 2 * 4 * (1_000_000 + 3 * 1000)


def test_a_hop_between_seats_of_a_card_is_two_launches_and_a_copy() -> None:
    model = build_model(layers(2))
    ask = build_ask(model, context=64, devices=("gpu0", "gpu0"), tp="off")
    (first, last) = compile(build_manifest(model), one_card(), ask).predicted.decode.stages
    row = model.hidden_size * 2
    assert (first.hop_ns, last.hop_ns) == (2 * row + 2000, 2 * 64 + 2000)


def test_a_card_with_two_stages_around_another_is_the_beat() -> None:
    """a, b, a: a chunk takes a two turns; the last chunk still has to see one more device."""
    model = build_model(layers(4))
    devices = [build_device(name, 10**9, gb_s=1.0, tflops={"bfloat16": 1.0}) for name in "ab"]
    topology = build_topology(devices, latency_us=0.1, gb_s=1000.0)
    ask = build_ask(model, context=4096, prompt=4096, prefill_chunk=512, objective="prefill",
                    devices=("a", "b", "a"), tp="off")  # fmt: skip
    groups = tuple(Group((name,), "single") for name in "aba")
    for cuts, beat in (((0, 1, 2, 4), 3), ((0, 1, 3, 4), 2)):
        assert [end - first for first, end in pairwise(cuts)].count(2) == 1
        shape = Candidate(groups, cuts, ((), (), ()), "last", ())
        plan = lowered_plan(build_manifest(model), topology, ask, shape)
        assert plan.predicted.prefill is not None
        assert plan.predicted.prefill.total_ns == (8 + 1) * beat * 1_000_000
    assert plan.provenance.solver.value == plan.predicted.prefill.total_ns
    assert [stage.layers for stage in compile(build_manifest(model), topology, ask).stages] == [
        (0, 1), (1, 3), (3, 4)]  # fmt: skip
