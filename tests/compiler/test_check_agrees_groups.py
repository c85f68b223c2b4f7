"""Compiler, checker and brute force come to the same bytes and ns of random TP placements.

Each has its own code; the value in the plan's proof is the brute force's.
"""

import random

import pytest
from plancc_bruteforce import BruteForce, Candidate, Search
from plancc_bruteforce_shapes import is_led_by_name, lineups, tile_runs
from plancc_builders import build_manifest
from plancc_random_groups import Question, random_group_question
from plancc_shape_words import lowered_plan

from plancc.compiler.check import content_problems
from plancc.ir.topology import Topology

Random = random.Random
OBJECTIVES = ("latency", "prefill", "throughput")


def roomy(topology: Topology) -> Topology:
    """The same devices with room for anything."""
    size = {"total_bytes": 10**13, "free_bytes": 10**13}
    devices = tuple(device.model_copy(update=size) for device in topology.devices)
    return topology.model_copy(update={"devices": devices})


def random_candidate(rng: Random, oracle: BruteForce) -> Candidate | None:
    """Any legal shape, one with a group if there is one; None where the ask allows none at all."""
    rows = list(lineups(oracle.model, oracle.topology, oracle.ask))
    rng.shuffle(rows)
    rows.sort(key=lambda row: all(group.mixer == "single" for group in row))
    for row in rows:
        head = rng.choice(oracle.heads(len(row)))
        homes = tuple(rng.randrange(len(row)) for _ in oracle.free)
        count = len(oracle.model.layers)
        if len(oracle.cuts) < len(row) - 1 or oracle.ask.stage_layers is not None:
            continue
        cuts = (0, *sorted(rng.sample(oracle.cuts, len(row) - 1)), count)
        deals = [tile_runs(oracle.model, (cuts[s], cuts[s + 1]), len(group.devices))
                 for s, group in enumerate(row)]  # fmt: skip
        legal = oracle.honours_pins(row, head, homes) and is_led_by_name(row, homes, oracle.ask)
        if all(deals) and legal:
            return Candidate(row, cuts, tuple(rng.choice(deal) for deal in deals), head, homes)
    return None


def question_of(seed: int) -> Question:
    model, topology, ask = random_group_question(seed, OBJECTIVES[seed % 3])
    return model, roomy(topology), ask.model_copy(update={"stage_layers": None})


@pytest.mark.parametrize("seed", range(150))
def test_the_checker_finds_nothing_in_a_lowered_placement_with_groups(seed: int) -> None:
    model, topology, ask = question_of(seed)
    oracle = BruteForce(model, topology, ask)
    shape = random_candidate(Random(seed), oracle)
    if shape is None:
        return
    manifest = build_manifest(model)
    plan = lowered_plan(manifest, topology, ask, shape)
    assert content_problems(plan, manifest, topology) == ()


def test_most_of_these_placements_have_groups() -> None:
    shapes = [random_candidate(Random(seed), BruteForce(*question_of(seed))) for seed in range(150)]
    mixers = [{group.mixer for group in shape.groups} for shape in shapes if shape is not None]
    assert sum("replicated" in found for found in mixers) >= 30
    assert sum("owned" in found for found in mixers) >= 30


@pytest.mark.parametrize("seed", range(0, 150, 3))
def test_ledgers_are_those_of_the_brute_force(seed: int) -> None:
    model, topology, ask = question_of(seed)
    oracle = BruteForce(model, topology, ask)
    shape = random_candidate(Random(seed), oracle)
    if shape is None:
        return
    plan = lowered_plan(build_manifest(model), topology, ask, shape)
    ledgers = {device.name: device.ledger for device in plan.devices}
    search = Search(oracle, ask.context or 1)
    for stage, group in enumerate(shape.groups):
        role = search.role(shape.groups, shape.head, shape.homes, stage)
        layers = (shape.cuts[stage], shape.cuts[stage + 1])
        for rank, name in enumerate(group.devices):
            columns = search.sums(1).columns(group, shape.tiles[stage], layers, role, rank)
            assert tuple(ledgers[name].parts().values())[:6] == columns
