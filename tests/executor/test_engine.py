"""Requests at the driver: context, chunks, stops, slots."""

from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_local_run import LocalRun
from plancc_plans import build_plan, manifest_of

from plancc.executor.failures import ContextExceeded, NonFinite
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelManifest

SPEC = TinyLlama(
    num_layers=2, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1, vocab_size=260
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("engine") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


def prompt_of(length: int) -> list[int]:
    return [(7 * index + 3) % 260 for index in range(length)]


def test_a_prompt_that_fills_the_context_is_refused_before_any_stage(
    folder: Path, manifest: ModelManifest
) -> None:
    run = LocalRun(build_plan(manifest, (0, 1, 2), context=64), folder)
    reference = run.answer(prompt_of(5)).tokens
    for length in (64, 65, 5000):
        steps = [rank.pulse.progress for rank in run.ranks.ranks]
        with pytest.raises(ContextExceeded, match=f"{length} tokens; the plan's context is 64"):
            run.answer(prompt_of(length))
        assert [rank.pulse.progress for rank in run.ranks.ranks] == steps
    assert run.answer(prompt_of(5)).tokens == reference


@pytest.mark.parametrize(("length", "expected"), [(63, 1), (60, 4)])
def test_an_answer_ends_where_the_context_ends(
    folder: Path, manifest: ModelManifest, length: int, expected: int
) -> None:
    answer = LocalRun(build_plan(manifest, (0, 2), context=64), folder).answer(
        prompt_of(length), max_tokens=100
    )
    assert (len(answer.tokens), answer.finish) == (expected, "length")


def test_a_context_that_is_no_whole_number_of_pages_can_be_filled(
    folder: Path, manifest: ModelManifest
) -> None:
    plan = build_plan(manifest, (0, 1, 2), context=37, slots=2)
    answer = LocalRun(plan, folder).answer(prompt_of(30), max_tokens=100)
    assert (len(answer.tokens), answer.num_tokens) == (7, 36)


@pytest.mark.parametrize("chunk", [1, 4, 7, 16, 50])
@pytest.mark.parametrize("cuts", [(0, 2), (0, 1, 2)])
def test_one_chunk_or_many_give_the_same_bits(
    folder: Path, manifest: ModelManifest, chunk: int, cuts: tuple[int, ...]
) -> None:
    whole = LocalRun(build_plan(manifest, (0, 2), chunk=64), folder).answer(prompt_of(33))
    plan = build_plan(manifest, cuts, chunk=chunk)
    assert LocalRun(plan, folder).answer(prompt_of(33)) == whole


def test_the_head_at_the_first_stage_gives_the_same_bits(
    folder: Path, manifest: ModelManifest
) -> None:
    last = LocalRun(build_plan(manifest, (0, 1, 2)), folder).answer(prompt_of(20))
    first = LocalRun(build_plan(manifest, (0, 1, 2), head="first"), folder)
    assert first.answer(prompt_of(20)) == last


def test_seats_of_one_device_give_the_same_bits(folder: Path, manifest: ModelManifest) -> None:
    plan = build_plan(manifest, (0, 1, 2), devices=["cpu0", "cpu0"])
    whole = LocalRun(build_plan(manifest, (0, 2)), folder).answer(prompt_of(20))
    assert LocalRun(plan, folder).answer(prompt_of(20)) == whole


def test_a_stop_token_ends_the_answer_and_is_marked(folder: Path, manifest: ModelManifest) -> None:
    run = LocalRun(build_plan(manifest, (0, 2)), folder)
    free = run.answer(prompt_of(9), max_tokens=8)
    stop = free.tokens[3]
    stopped = run.answer(prompt_of(9), max_tokens=8, stop_ids=(stop, 259))
    first = free.tokens.index(stop)
    assert stopped.tokens == free.tokens[: first + 1]
    assert stopped.finish == "stop"
    assert [row.is_stop for row in stopped.sampled] == [False] * first + [True]


def test_a_scripted_model_says_what_comes_before_its_stop_token(
    folder: Path, manifest: ModelManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S01: eos 1, 7 and 9; the model says 20 21 9 22 23."""
    monkeypatch.setenv("PLANCC_FAKE_SCRIPT", "20,21,9,22,23")
    run = LocalRun(build_plan(manifest, (0, 1, 2)), folder)
    answer = run.answer(prompt_of(5), max_tokens=5, stop_ids=(1, 7, 9))
    assert [row.token for row in answer.sampled if not row.is_stop] == [20, 21]
    assert answer.finish == "stop"
    unstopped = run.answer(prompt_of(5), max_tokens=5)
    assert (unstopped.tokens, unstopped.finish) == ([20, 21, 9, 22, 23], "length")


def test_an_answer_is_the_same_after_another_and_after_a_cancelled_one(
    folder: Path, manifest: ModelManifest
) -> None:
    run = LocalRun(build_plan(manifest, (0, 1, 2)), folder)
    alone = run.answer(prompt_of(12))
    run.answer(prompt_of(40), max_tokens=20)
    assert run.answer(prompt_of(12)) == alone
    from plancc.executor.request import Request

    request = Request(prompt_ids=tuple(prompt_of(40)), max_tokens=20)
    cancelled = run.engine.generate(request)
    next(cancelled)
    cancelled.close()
    assert run.answer(prompt_of(12)) == alone


def test_a_seed_repeats_an_answer_and_another_seed_does_not(
    folder: Path, manifest: ModelManifest
) -> None:
    run = LocalRun(build_plan(manifest, (0, 2)), folder)
    draws = [
        run.answer(prompt_of(9), max_tokens=12, temperature=1.5, seed=seed).tokens
        for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_ids_beyond_the_vocabulary_are_refused(folder: Path, manifest: ModelManifest) -> None:
    run = LocalRun(build_plan(manifest, (0, 2)), folder)
    with pytest.raises(BadInput, match="token id 260 is not below the model's vocab_size 260"):
        run.answer([5, 260])


def test_rows_that_are_not_finite_end_the_request_and_only_that(
    folder: Path, manifest: ModelManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LocalRun(build_plan(manifest, (0, 1, 2)), folder)
    alone = run.answer(prompt_of(12))
    monkeypatch.setenv("PLANCC_FAKE_FAULT", "0:decode:nan")
    with pytest.raises(NonFinite, match="position 13 are not finite"):
        run.answer(prompt_of(12))
    monkeypatch.delenv("PLANCC_FAKE_FAULT")
    assert run.answer(prompt_of(12)) == alone
