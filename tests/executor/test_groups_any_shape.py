"""Any stages of any groups with any shares and chunks: the bits of one device."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.legality import plan_problems
from plancc.ir.manifest import ModelManifest

LAYERS, TILES = 4, 11
SPEC = TinyLlama(num_layers=LAYERS, hidden_size=40, intermediate_size=TILES, num_heads=5,
                 num_kv_heads=1, vocab_size=260, dtype="float16", attention_bias=True)  # fmt: skip
PROMPT = [(7 * at * at + 3 * at) % 260 for at in range(75)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelManifest, Path, Answer]:
    folder = write_checkpoint(tmp_path_factory.mktemp("any") / "toy", SPEC)
    manifest = manifest_of(folder, SPEC)
    plan = group_plan(manifest, [stage((0, LAYERS), "cpu0")], context=96, prefill_chunk=80)
    return manifest, folder, LocalRun(plan, folder).answer(PROMPT)


@st.composite
def shapes(draw: st.DrawFn) -> list[PlacedStage]:
    cuts = sorted({0, LAYERS} | draw(st.sets(st.integers(1, LAYERS - 1), max_size=2)))
    stages, used = [], 0
    for layers in pairwise(cuts):
        tiles = sorted(draw(st.sets(st.integers(1, TILES - 1), max_size=4)))
        names = [f"cpu{used + rank}" for rank in range(len(tiles) + 1)]
        used += len(names)
        mixer = draw(st.sampled_from(("replicated", "owned"))) if tiles else "single"
        stages.append(stage(layers, *names, tiles=tiles, mixer=mixer))
    return stages


@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(
    stages=shapes(),
    chunk=st.integers(1, 80),
    slots=st.integers(1, 3),
    head=st.sampled_from(("first", "last")),
)
def test_any_shape_gives_the_bits_of_one_device_within_its_ledger(
    stages: list[PlacedStage],
    chunk: int,
    slots: int,
    head: str,
    world: tuple[ModelManifest, Path, Answer],
) -> None:
    manifest, folder, alone = world
    plan = group_plan(manifest, stages, head=head, context=96, prefill_chunk=chunk,  # type: ignore[arg-type]
                      slots=slots)  # fmt: skip
    assert plan_problems(plan) == ()
    run = LocalRun(plan, folder)
    assert run.answer(PROMPT) == alone
    for device, columns in run.ranks.allocated_bytes().items():
        planned = plan.device(device).ledger.parts()
        assert all(size <= planned[column] for column, size in columns.items())
