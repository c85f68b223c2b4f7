"""The solver against every placement, one by one, on seeded random questions.

`PLANCC_SWEEP=20000 pytest tests/oracle/test_placement_is_optimal.py` tries that many more seeds,
and all those here, of which the default run leaves most of the longest out.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from plancc_bruteforce import BruteForce
from plancc_random import Question, random_question
from plancc_random_groups import (
    random_group_question,
    random_home_question,
    random_layout_question,
)
from plancc_random_ties import random_tie_question
from plancc_shape_words import candidate_of

from plancc.compiler.placement.place import place
from plancc.compiler.placement.placement import Placement
from plancc.ir.errors import BadInput, DoesNotFit

OBJECTIVES = ("latency", "prefill", "throughput", "context")
PER_TEST = 25
MOST_CONTEXT = 700
Ask = Callable[..., Question]


def answered(question: Question) -> Placement | None:
    """The solver's placement; None where nothing fits, or the flags contradict each other."""
    try:
        return place(*question)
    except (DoesNotFit, BadInput):
        return None


def difference(question: Question) -> str | None:
    """What the solver says otherwise than trying everything does, or None."""
    model, topology, ask = question
    if ask.objective == "context":
        model = model.model_copy(update={"max_context": MOST_CONTEXT})
    oracle, placement = BruteForce(model, topology, ask), answered((model, topology, ask))
    if ask.objective == "context" and (wrong := _context_difference(oracle, placement)):
        return wrong
    context = placement.context if placement and ask.objective == "context" else None
    best = oracle.best(context or (1 if ask.objective == "context" else None))
    if best is None or placement is None:
        return None if best is placement else f"expected {best}, found {placement}"
    least, preferred = best
    proof, found = placement.proof, candidate_of(oracle, placement)
    if found != preferred.candidate:
        return f"expected {preferred}, found {found} worth {proof.value}"
    if ask.objective != "context" and (proof.best, proof.value) != (least, preferred.value):
        return f"expected {(least, preferred.value)}, found {(proof.best, proof.value)}"
    proven = (proof.status, proof.gap, proof.bound, proof.best_bound)
    expected = ("optimal", 0, proof.value, proof.best)
    return None if proven == expected else f"expected {expected}, found {proven}"


def _context_difference(oracle: BruteForce, placement: Placement | None) -> str | None:
    """The largest context fits, and one token more does not."""
    if placement is None:
        return "one token fits, found a refusal" if oracle.fits(1) else None
    if not oracle.fits(placement.context):
        return f"{placement.context} tokens do not fit"
    if placement.context < MOST_CONTEXT and oracle.fits(placement.context + 1):
        return f"more than {placement.context} tokens fit"
    return None


def differences(ask: Ask, objective: str, seeds: range, **flags: Any) -> dict[int, str]:
    """{seed: what differs}; empty where solver and oracle agree on all seeds."""
    found = {seed: difference(ask(seed, objective, **flags)) for seed in seeds}
    return {seed: wrong for seed, wrong in found.items() if wrong is not None}


def chunks(count: int, first: int = 0) -> list[range]:
    return [range(at, at + PER_TEST) for at in range(first, first + count, PER_TEST)]


CASES = {"latency": 175, "prefill": 75, "throughput": 75, "context": 25}
HAS_SWEEP = "PLANCC_SWEEP" in os.environ
GROUP_CASES = {"latency": 750 if HAS_SWEEP else 200, "prefill": 100, "throughput": 100,
               "context": 75}  # fmt: skip
HOME_CASES = 75 if HAS_SWEEP else 25  # each takes long to try in full
PIPELINES = {"tp": "off"}


@pytest.mark.parametrize(
    ("objective", "seeds"), [(name, seeds) for name in OBJECTIVES for seeds in chunks(CASES[name])]
)
def test_the_solver_finds_what_trying_every_pipeline_finds(objective: str, seeds: range) -> None:
    assert differences(random_question, objective, seeds, **PIPELINES) == {}


@pytest.mark.parametrize(
    ("objective", "seeds"),
    [(name, seeds) for name in OBJECTIVES for seeds in chunks(GROUP_CASES[name])],
)
def test_the_solver_finds_what_trying_every_group_finds(objective: str, seeds: range) -> None:
    assert differences(random_group_question, objective, seeds) == {}


@pytest.mark.parametrize("ask", [random_question, random_group_question])
@pytest.mark.parametrize("seeds", chunks(100))
def test_the_solver_finds_what_trying_every_pipeline_finds_for_a_workload(
    ask: Ask, seeds: range
) -> None:
    assert differences(ask, "workload", seeds, **PIPELINES) == {}


@pytest.mark.parametrize("seeds", chunks(75))
def test_of_several_ways_to_the_least_mix_the_preferred_shape_is_chosen(seeds: range) -> None:
    assert differences(random_tie_question, "workload", seeds) == {}


@pytest.mark.parametrize("seeds", chunks(HOME_CASES))
def test_a_block_may_lie_on_any_device_of_a_group_between_the_ends(seeds: range) -> None:
    assert differences(random_home_question, "latency", seeds) == {}


@pytest.mark.parametrize(
    ("objective", "seeds"),
    [(name, seeds) for name in ("latency", "context") for seeds in chunks(50)],
)
def test_every_device_has_room_for_scratch_as_it_lays_it_out(objective: str, seeds: range) -> None:
    assert differences(random_layout_question, objective, seeds) == {}


@pytest.mark.skipif(not HAS_SWEEP, reason="PLANCC_SWEEP: how many more seeds")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_many_more_questions_are_answered_alike(objective: str) -> None:
    wrong: dict[int, str] = {}
    for seeds in chunks(int(os.environ["PLANCC_SWEEP"]) // len(OBJECTIVES), first=10**6):
        wrong |= differences(random_group_question, objective, seeds)
    assert wrong == {}
