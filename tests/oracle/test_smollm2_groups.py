"""SmolLM2 (9 heads, 3 KV heads, MLP of 1,536) in groups: 64 tokens with the bits of one device."""

from pathlib import Path

import pytest
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun

from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.manifest import ModelManifest

SMOL = Path(__file__).parents[2] / ".demo" / "SmolLM2-135M-Instruct"
PROMPT = [(97 * at * at + 31) % 49000 for at in range(70)]
SHAPES = {
    "four unequal replicas": [stage((0, 30), *("cpu0",) * 4, tiles=(3, 4, 11), mixer="replicated")],
    "three after one, owned": [stage((0, 11), "cpu0"),
                               stage((11, 30), *("cpu1",) * 3, tiles=(2, 9), mixer="owned")],
}  # fmt: skip

pytestmark = pytest.mark.skipif(not SMOL.is_dir(), reason="`make weights` fetches SmolLM2")


@pytest.fixture(scope="module")
def manifest() -> ModelManifest:
    return manifest_of_folder(SMOL).manifest


def answer(manifest: ModelManifest, stages: list[PlacedStage], chunk: int) -> Answer:
    plan = group_plan(manifest, stages, context=160, prefill_chunk=chunk)
    return LocalRun(plan, SMOL).answer(PROMPT, 64)


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest) -> Answer:
    found = answer(manifest, [stage((0, 30), "cpu0")], 128)
    assert len(found.tokens) == 64
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_smollm2_in_a_group_has_the_bits_of_one_device(
    name: str, manifest: ModelManifest, alone: Answer
) -> None:
    assert answer(manifest, SHAPES[name], 32) == alone
