"""Whole plans on this machine's cards, or all ranks on its one: the bits of one device."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gpu_fused import Layout, write_fused
from plancc_gpu_patterns import KIB, MIB, WAYS, Seat, wrong_numbers
from plancc_gpu_plans import BACKENDS, cards_here, on_cards
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.compiler.placement.placement import PlacedStage
from plancc.executor.backend import cuda_link
from plancc.ir.errors import RunFailed
from plancc.ir.manifest import ModelManifest

pytestmark = pytest.mark.gpu
PROMPT = [7 * i % 300 for i in range(310)]
SPEC = TinyLlama(num_layers=5, hidden_size=256, intermediate_size=704, num_heads=8, num_kv_heads=2,
                 dtype="bfloat16")  # fmt: skip


def group(
    layers: tuple[int, int], first: int, *tiles: int, mixer: str = "replicated"
) -> PlacedStage:
    names = [f"cpu{first + i}" for i in range(len(tiles) + 1)]
    return stage(layers, *names, tiles=tiles, mixer=mixer)  # type: ignore[arg-type]


PIPELINES = {
    "2 stages": [stage((0, 2), "cpu0"), stage((2, 5), "cpu1")],
    "3 stages": [stage((0, 1), "cpu0"), stage((1, 4), "cpu1"), stage((4, 5), "cpu2")],
}
GROUPS = {
    "2 equal": [group((0, 5), 0, 8)],
    "2 unequal": [group((0, 5), 0, 3)],
    "4 unequal": [group((0, 5), 0, 1, 4, 15)],
    "2 x 2": [group((0, 2), 0, 8), group((2, 5), 2, 9)],
    "single, group of 3": [stage((0, 1), "cpu0"), group((1, 5), 1, 2, 9)],
    "group, single": [group((0, 3), 0, 7), stage((3, 5), "cpu2")],
    "2 owned": [group((0, 5), 0, 10, mixer="owned")],
    "owned, replicated": [group((0, 2), 0, 4, 9, mixer="owned"), group((2, 5), 3, 8)],
}
MODES = (("OneCard", "Eager", "Delayed") if len(cards_here()) == 1
         else ("Cards", "EagerCards", "DelayedCards"))  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("cards") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


def run(
    manifest: ModelManifest, folder: Path, stages: list[PlacedStage], mode: str = MODES[0],
    transport: str = "p2p", head: str = "last", chunk: int = 128,
) -> LocalRun:  # fmt: skip
    plan = group_plan(manifest, stages, head=head, context=400,  # type: ignore[arg-type]
                      prefill_chunk=chunk)  # fmt: skip
    return LocalRun(on_cards(plan, transport), folder, BACKENDS[mode])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest, folder: Path) -> Answer:
    return run(manifest, folder, [stage((0, 5), "cpu0")]).answer(PROMPT, 70)


def check(one: LocalRun, alone: Answer) -> None:
    """By digests of every step's logits and of the KV, twice; and by tokens drawn ahead."""
    for _ in range(2):  # graphs are made of chunks of as many blocks, and of other rows
        one.answer(PROMPT[:-3], 2)
    for _ in range(2):  # the second time replays every graph
        assert one.answer(PROMPT, 70) == alone
    for _ in range(2):
        ahead = one.answer(PROMPT, 70, wants_digests=False)
        assert (ahead.tokens, ahead.kv) == (alone.tokens, alone.kv)
    timed = one.answer(PROMPT, 70, wants_digests=False, wants_times=True)
    assert (timed.tokens, timed.kv) == (alone.tokens, alone.kv)


@pytest.mark.parametrize("transport", ["p2p", "staged"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", PIPELINES)
def test_a_pipeline_gives_the_bits_of_one_device(
    shape: str, mode: str, transport: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    check(run(manifest, folder, PIPELINES[shape], mode, transport, chunk=100), alone)


def test_a_head_on_the_first_stage_and_other_chunks_change_nothing(
    manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    for chunk in (37, 310):
        check(run(manifest, folder, PIPELINES["2 stages"], head="first", chunk=chunk), alone)


@pytest.mark.parametrize("transport", ["p2p", "staged"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", GROUPS)
def test_a_group_gives_the_bits_of_one_device(
    shape: str, mode: str, transport: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    check(run(manifest, folder, GROUPS[shape], mode, transport), alone)


def test_hops_and_segments_are_timed_where_it_is_asked(
    manifest: ModelManifest, folder: Path
) -> None:
    one = run(manifest, folder, PIPELINES["2 stages"])
    one.answer(PROMPT, 20, wants_times=True)
    source, target = sorted(one.reports, key=lambda report: report.rank)
    for report in (source, target):
        assert len(report.run_ns) == 18  # of 19 steps: the first is made into a graph
        assert all(0 < time < 1e9 for time in report.run_ns)
    (link,) = (index for index, x in enumerate(one.plan.links) if x.payload == "hidden")
    hops = [b - a for a, b in zip(source.sent[link], target.received[link], strict=True)]
    assert -5_000 < sorted(hops)[len(hops) // 2] < 1e7


def test_a_cache_of_another_format_gives_the_same_bits_in_any_shape(
    manifest: ModelManifest, folder: Path
) -> None:
    ask = {"context": 400, "prefill_chunk": 128, "kv_dtype": "float32"}
    answers = [
        LocalRun(on_cards(group_plan(manifest, stages, **ask)),  # type: ignore[arg-type]
                 folder, BACKENDS[MODES[0]]).answer(PROMPT, 40)
        for stages in ([stage((0, 5), "cpu0")], PIPELINES["3 stages"], GROUPS["2 x 2"])
    ]  # fmt: skip
    assert answers[1:] == answers[:1] * 2


def test_biases_of_attention_are_added_once_in_any_shape(tmp_path: Path) -> None:
    spec = replace(SPEC, attention_bias=True)
    folder = write_checkpoint(tmp_path / "biases", spec)
    manifest = manifest_of(folder, spec)
    alone = run(manifest, folder, [stage((0, 5), "cpu0")]).answer(PROMPT, 70)
    for name in ("4 unequal", "2 owned"):
        for mode in (MODES[0], MODES[1]):
            check(run(manifest, folder, GROUPS[name], mode), alone)


@pytest.mark.parametrize("layout", ["concatenated", "interleaved"])
def test_l07_gate_and_up_in_one_tensor_give_the_bits_of_two(
    layout: Layout, manifest: ModelManifest, folder: Path, alone: Answer, tmp_path: Path
) -> None:
    fused = write_fused(tmp_path / "toy", SPEC, layout)
    for stages in ([stage((0, 5), "cpu0")], GROUPS["4 unequal"]):
        assert run(fused, tmp_path / "toy", stages).answer(PROMPT, 70) == alone


@pytest.mark.skipif(len(cards_here()) < 2, reason="p2p is between two cards")
def test_t03_a_plan_is_refused_where_what_is_written_does_not_arrive(
    manifest: ModelManifest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_link, "copy_rows", lambda source, target: None)
    with pytest.raises(RunFailed, match="p2p is said to work, but what is written does not arrive"):
        run(manifest, folder, PIPELINES["2 stages"])


def test_e04_a_large_hop_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """2,048 rows of 8,192 numbers in two slots; copies and readers that end 0 to 20 ms late."""
    spec = replace(SPEC, num_layers=2, hidden_size=8192, intermediate_size=64, num_heads=2,
                   num_kv_heads=1, head_dim=64, max_context=8192)  # fmt: skip
    folder = write_checkpoint(tmp_path / "wide", spec)
    manifest, prompt = manifest_of(folder, spec), [11 * i % 300 for i in range(6200)]
    made: Callable[..., LocalRun] = lambda mode, transport: LocalRun(  # noqa: E731
        on_cards(group_plan(manifest, [stage((0, 1), "cpu0"), stage((1, 2), "cpu1")],
                            context=6400, prefill_chunk=2048), transport),
        folder, BACKENDS[mode])  # fmt: skip
    expected = made(MODES[0], "p2p").answer(prompt, 8)
    for transport in ("p2p", "staged"):
        assert made(MODES[-1], transport).answer(prompt, 8) == expected


@pytest.mark.parametrize("size_bytes", [4 * KIB, 256 * KIB, MIB, 64 * MIB])
@pytest.mark.parametrize("way", WAYS)
def test_e04_patterns_of_any_size_arrive_while_both_sides_are_busy(
    way: str, size_bytes: int
) -> None:
    """200 times through two slots, 64 MiB 40 times; each time another number in every place."""
    source, target = Seat.of(0), Seat.of(len(cards_here()) - 1)
    wrong = wrong_numbers(source, target, way, size_bytes, 200 if size_bytes <= MIB else 40)
    assert wrong == 0


def test_e04_a_link_that_does_not_wait_is_caught() -> None:
    """What the pattern test would say of one: hops are read before they came."""
    source, target = Seat.of(0), Seat.of(len(cards_here()) - 1)
    assert wrong_numbers(source, target, "pinned", MIB, 20, waits=False) > 0
