"""Plans on cards, in Triton's interpreter: the engine, links and draws of a whole run."""

import os
from dataclasses import replace
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gpu_plans import BACKENDS, on_cards
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.ir.manifest import ModelManifest
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

PROMPT = [7, 3, 25, 12, 9]
SPEC = TinyLlama(num_layers=2, hidden_size=32, intermediate_size=3, vocab_size=40, num_heads=2,
                 num_kv_heads=1, dtype="bfloat16")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("cards") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


def run(manifest: ModelManifest, folder: Path, *cuts: int, **how: str) -> LocalRun:
    """Stages cut at layers; head: first or last; transport of the links."""
    borders = (0, *cuts, 2)
    stages = [stage((a, b), f"cpu{i}") for i, (a, b) in enumerate(zip(borders, borders[1:]))]
    plan = group_plan(manifest, stages, head=how.get("head", "last"),  # type: ignore[arg-type]
                      context=24, prefill_chunk=int(how.get("chunk", "16")))  # fmt: skip
    plan = on_cards(plan, how.get("transport", "p2p"))  # type: ignore[arg-type]
    return LocalRun(plan, folder, BACKENDS["Interpreted"])


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest, folder: Path) -> Answer:
    return run(manifest, folder).answer(PROMPT, 5)


@pytest.mark.parametrize("how", [{}, {"transport": "staged", "head": "first"}, {"chunk": "3"}])
def test_two_stages_give_the_bits_of_one(
    how: dict[str, str], manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    assert run(manifest, folder, 1, **how).answer(PROMPT, 5) == alone


def test_tokens_drawn_on_the_device_are_those_of_the_host(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    one = run(manifest, folder, 1)
    found = one.answer(PROMPT, 5, wants_digests=False)
    assert found.tokens == alone.tokens
    assert (found.finish, found.num_tokens, found.kv) == ("length", 9, alone.kv)
    again = one.answer(PROMPT, 19, wants_digests=False)
    assert again.tokens[:5] == alone.tokens
    assert again.num_tokens == 23


def test_a_step_begun_ahead_of_a_stop_token_changes_nothing(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    one = run(manifest, folder, 1)
    third = alone.tokens[2]
    count = alone.tokens.index(third) + 1
    found = one.answer(PROMPT, 5, wants_digests=False, stop_ids=(third,))
    assert (found.finish, found.num_tokens) == ("stop", len(PROMPT) + count - 1)
    assert found.tokens == alone.tokens[:count]
    assert one.answer(PROMPT, 5) == alone


def test_rows_that_are_not_finite_end_the_answer(tmp_path: Path) -> None:
    from plancc.executor.failures import NonFinite

    spec = replace(SPEC, num_layers=1)
    folder = write_checkpoint(tmp_path / "toy", spec)
    manifest = manifest_of(folder, spec)
    plan = on_cards(group_plan(manifest, [stage((0, 1), "cpu0")], context=24))
    broken = LocalRun(plan, folder, BACKENDS["Interpreted"])
    broken.ranks.ranks[0].model._weights.buffers["final_norm"][3] = float("nan")  # type: ignore[attr-defined]
    with pytest.raises(NonFinite):
        broken.answer(PROMPT, 3, wants_digests=False)
