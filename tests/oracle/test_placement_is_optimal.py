"""The solver against every placement, one by one, on seeded random questions."""

import pytest
from plancc_bruteforce import BruteForce, Candidate
from plancc_random import random_question

from plancc.compiler.placement.place import place
from plancc.compiler.placement.placement import Placement
from plancc.ir.errors import BadInput, DoesNotFit
from plancc.ir.manifest import ModelShape

SEEDS = {"latency": range(180), "prefill": range(60), "throughput": range(60), "context": range(16)}
CASES = [(objective, seed) for objective, seeds in SEEDS.items() for seed in seeds]


def _candidate(model: ModelShape, placement: Placement) -> Candidate:
    """The solver's answer in the oracle's words."""
    stages = placement.stages
    first = len(stages) > 1 and "head" in stages[0].blocks
    free = [block.name for block in model.blocks if block.name not in ("embed", "head")]
    homes = {name: index for index, stage in enumerate(stages) for name in stage.blocks}
    return Candidate(
        devices=tuple(stage.devices[0] for stage in stages),
        cuts=(0, *(stage.layers[1] for stage in stages)),
        head="first" if first else "last",
        homes=tuple(homes[name] for name in free),
    )


def _comparable(oracle: BruteForce, shape: Candidate, model: ModelShape) -> Candidate:
    """The oracle only lists homes of blocks that may be anywhere."""
    free = [block.name for block in model.blocks if block.name not in ("embed", "head")]
    kept = tuple(home for name, home in zip(free, shape.homes, strict=True) if name in oracle.free)
    return Candidate(shape.devices, shape.cuts, shape.head, kept)


@pytest.mark.parametrize(("objective", "seed"), CASES)
def test_the_solver_finds_what_trying_everything_finds(objective: str, seed: int) -> None:
    model, topology, ask = random_question(seed, objective)
    oracle = BruteForce(model, topology, ask)
    if objective == "context":
        model = model.model_copy(update={"max_context": 700})
        oracle = BruteForce(model, topology, ask)
        fitting = [n for n in range(1, 701) if oracle.best(n)] if seed < 2 else None
    best = oracle.best() if objective != "context" else None
    try:
        placement = place(model, topology, ask)
    except (DoesNotFit, BadInput):  # BadInput: the asked cuts part layers that share KV
        assert best is None
        if objective == "context":
            assert oracle.best(1) is None
        return
    if objective == "context":
        assert oracle.best(placement.context) is not None
        assert placement.context == 700 or oracle.best(placement.context + 1) is None
        assert fitting is None or placement.context == max(fitting)
        best = oracle.best(placement.context)
    assert best is not None
    least, preferred = best
    if objective != "context":
        assert placement.proof.best == least
        assert placement.proof.value == preferred.value
    assert placement.proof.status == "optimal"
    assert placement.proof.gap == 0
    found = _comparable(oracle, _candidate(model, placement), model)
    assert found == preferred.candidate
