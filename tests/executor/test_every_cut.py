"""One model, every way to cut it: the same bits (design.md section 9)."""

from itertools import combinations
from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_local_run import Answer, LocalRun
from plancc_plans import build_plan, manifest_of

from plancc.ir.legality import plan_problems

LAYERS = 7
PROMPT = [7, 3, 250, 12, 99, 4, 31, 18, 200, 45, 6, 77, 5, 150, 33, 21, 8, 64, 9]
SPEC = TinyLlama(
    num_layers=LAYERS, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1,
    vocab_size=260, dtype="bfloat16",
)  # fmt: skip
CUTS = [
    (0, *inner, LAYERS) for stages in range(4) for inner in combinations(range(1, LAYERS), stages)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("cuts") / "toy", SPEC)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Answer:
    plan = build_plan(manifest_of(folder, SPEC), (0, LAYERS), kind="cpu")
    return LocalRun(plan, folder).answer(PROMPT)


def test_there_are_42_cuts_of_7_layers_into_1_to_4_stages() -> None:
    assert len(CUTS) == 42


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "-".join(map(str, cuts)))
def test_every_cut_gives_the_logits_kv_and_tokens_of_one_device(
    cuts: tuple[int, ...], folder: Path, whole: Answer
) -> None:
    plan = build_plan(manifest_of(folder, SPEC), cuts, kind="cpu")
    assert plan_problems(plan) == ()
    assert LocalRun(plan, folder).answer(PROMPT) == whole


def test_every_other_way_to_run_the_plan_gives_the_same_bits(folder: Path, whole: Answer) -> None:
    """Other chunks, the head at the first stage, seats of one device, more slots, two threads."""
    manifest = manifest_of(folder, SPEC)
    for cuts, fields in (
        ((0, 7), {"chunk": 3}),
        ((0, 3, 7), {"chunk": 64}),
        ((0, 3, 7), {"head": "first", "chunk": 7}),
        ((0, 2, 5, 7), {"devices": ["cpu0", "cpu0", "cpu0"], "slots": 3}),
        ((0, 4, 7), {"threads": 2}),
    ):
        plan = build_plan(manifest, cuts, kind="cpu", **fields)  # type: ignore[arg-type]
        assert LocalRun(plan, folder).answer(PROMPT) == whole, fields
