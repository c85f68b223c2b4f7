"""Plans on cards, in Triton's interpreter: the engine, links and draws of a whole run."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gpu_plans import BACKENDS, on_cards
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.executor.failures import NonFinite
from plancc.executor.step import Step
from plancc.executor.step_codec import ReportAsk
from plancc.ir.manifest import ModelManifest
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")

PROMPT = [7, 3, 25, 12]
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
    stages = [stage((a, b), f"cpu{i}") for i, (a, b) in enumerate(pairwise(borders))]
    plan = group_plan(manifest, stages, head=how.get("head", "last"),  # type: ignore[arg-type]
                      context=int(how.get("context", "24")),
                      prefill_chunk=int(how.get("chunk", "5")))  # fmt: skip
    plan = on_cards(plan, how.get("transport", "p2p"))  # type: ignore[arg-type]
    return LocalRun(plan, folder, BACKENDS["Interpreted"])


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest, folder: Path) -> Answer:
    return run(manifest, folder).answer(PROMPT, 4)


@pytest.mark.parametrize("how", [{"chunk": "3"}, {"transport": "staged", "head": "first"}])
def test_two_stages_give_the_bits_of_one(
    how: dict[str, str], manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    assert run(manifest, folder, 1, **how).answer(PROMPT, 4) == alone


def test_tokens_drawn_on_the_device_are_those_of_the_host(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    one = run(manifest, folder, 1)
    found = one.answer(PROMPT, 4, wants_digests=False)
    assert found.tokens == alone.tokens
    assert (found.finish, found.num_tokens, found.kv) == ("length", 7, alone.kv)


def test_tokens_are_drawn_to_the_end_of_the_context(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    found = run(manifest, folder, context="7").answer(PROMPT, 19, wants_digests=False)
    assert found.tokens == alone.tokens[:3]
    assert (found.finish, found.num_tokens) == ("length", 6)


def test_a_step_begun_ahead_of_a_stop_token_changes_nothing(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    one = run(manifest, folder, 1)
    second = alone.tokens[1]
    count = alone.tokens.index(second) + 1
    found = one.answer(PROMPT, 4, wants_digests=False, stop_ids=(second,))
    assert (found.finish, found.num_tokens) == ("stop", len(PROMPT) + count - 1)
    assert found.tokens == alone.tokens[:count]
    assert one.answer(PROMPT, 4) == alone


class Twice:
    """A recorder that launches a step of a new key twice, as one is captured, and each later step
    once: what it does to links, exchanges and times must not be seen in an answer."""

    def __init__(self) -> None:
        self.keys: set[int] = set()

    def key(self, step: Step) -> int:
        return int(step.positions[0] >= 6)

    def run(self, step: Step, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        if self.key(step) not in self.keys:
            self.keys.add(self.key(step))
            launch()
        return launch()


def test_steps_that_are_recorded_and_repeated_change_nothing(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    one = run(manifest, folder, 1)
    one.ranks._recorder = Twice()
    assert one.answer(PROMPT, 4) == alone
    found = one.answer(PROMPT, 4, wants_digests=False)
    assert (found.tokens, found.kv) == (alone.tokens, alone.kv)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy sees them in the interpreter
@pytest.mark.parametrize("wants_digests", [True, False])
def test_rows_that_are_not_finite_are_named_by_their_stage(
    wants_digests: bool, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    """A token whose embedding is not finite, fed at the second step; others follow it."""
    one = run(manifest, folder, 1)
    second = alone.tokens[1]
    assert second not in (*PROMPT, alone.tokens[0])
    first, last = (rank.model for rank in one.ranks.ranks)
    first._weights.buffers["embedding"][second] = float("inf")  # type: ignore[attr-defined]
    with pytest.raises(NonFinite) as caught:
        one.answer(PROMPT, 4, wants_digests=wants_digests)
    assert caught.value.position == len(PROMPT) + 2
    one.engine.ask_reports(ReportAsk(0, 0, wants_kv=False))
    assert [report.is_finite for report in one.reports] == [False, False]
    last._weights.buffers["final_norm"][3] = float("nan")  # type: ignore[attr-defined]
    one.reports.clear()
    with pytest.raises(NonFinite) as caught:
        one.answer(PROMPT, 4, wants_digests=wants_digests)
    assert caught.value.position == len(PROMPT)
    one.engine.ask_reports(ReportAsk(0, 0, wants_kv=False))
    assert [report.is_finite for report in sorted(one.reports, key=lambda r: r.rank)] == [
        True, False,
    ]  # fmt: skip
