"""A TP group gives the bits of one device: logits, KV and tokens, in whatever shape."""

from pathlib import Path

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_group_plans import group_plan, in_one_process, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.compiler.placement.placement import PlacedStage
from plancc.ir.legality import plan_problems
from plancc.ir.manifest import ModelManifest

PROMPT = [7, 3, 250, 12, 99, 4, 31, 18, 200, 45, 6, 77, 5, 150, 33, 21, 8, 64, 9]
SPEC = TinyLlama(num_layers=4, num_heads=5, num_kv_heads=1, head_dim=16, vocab_size=260,
                 dtype="bfloat16")  # fmt: skip
TWO, THREE, FOUR = (tuple(f"cpu{i}" for i in range(n)) for n in (2, 3, 4))


def whole(mixer: str, *tiles: int, devices: tuple[str, ...] = ()) -> list[PlacedStage]:
    """One stage of all layers; `tiles` are the borders between shares."""
    names = devices or tuple(f"cpu{i}" for i in range(len(tiles) + 1))
    return [stage((0, 4), *names, tiles=tiles, mixer=mixer)]  # type: ignore[arg-type]


SHAPES: dict[str, list[PlacedStage]] = {
    "2 equal": whole("replicated", 8),
    "2 unequal": whole("replicated", 11),
    "3 unequal": whole("replicated", 3, 8),
    "4 equal": whole("replicated", 4, 8, 12),
    "4 unequal": whole("replicated", 1, 4, 15),
    "2 owned": whole("owned", 8),
    "3 owned, small owner": whole("owned", 1, 9),
    "4 owned": whole("owned", 5, 7, 13),
    "single, replicated": [stage((0, 1), "cpu0"),
                           stage((1, 4), "cpu1", "cpu2", tiles=(7,), mixer="replicated")],
    "replicated, single": [stage((0, 3), "cpu0", "cpu1", tiles=(7,), mixer="replicated"),
                           stage((3, 4), "cpu2")],
    "2 x 2": [stage((0, 2), "cpu0", "cpu1", tiles=(8,), mixer="replicated"),
              stage((2, 4), "cpu2", "cpu3", tiles=(9,), mixer="replicated")],
    "owned, replicated of 3": [
        stage((0, 2), "cpu0", "cpu1", tiles=(8,), mixer="owned"),
        stage((2, 4), "cpu2", "cpu3", "cpu4", tiles=(3, 9), mixer="replicated"),
    ],
    "replicated of 3, owned": [
        stage((0, 2), "cpu0", "cpu1", "cpu2", tiles=(2, 7), mixer="replicated"),
        stage((2, 4), "cpu3", "cpu4", tiles=(15,), mixer="owned"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("groups") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of(folder, SPEC)


@pytest.fixture(scope="module")
def alone(manifest: ModelManifest, folder: Path) -> Answer:
    plan = group_plan(manifest, [stage((0, 4), "cpu0")])
    return LocalRun(plan, folder).answer(PROMPT, 12)


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
def test_seats_of_one_device_exchange_as_devices_do(
    mixer: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    stages = whole(mixer, 5, 8, devices=("cpu0", "cpu0", "cpu0"))
    assert LocalRun(group_plan(manifest, stages), folder).answer(PROMPT, 12) == alone


@pytest.mark.parametrize("name", ["3 unequal", "3 owned, small owner", "2 x 2"])
@pytest.mark.parametrize(
    "fields", [{"prefill_chunk": 3}, {"prefill_chunk": 64, "slots": 3}, {"context": 41}]
)
def test_chunks_slots_and_context_leave_no_trace_in_a_group(
    name: str, fields: dict[str, int], manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    plan = in_one_process(group_plan(manifest, SHAPES[name], **fields))
    assert LocalRun(plan, folder).answer(PROMPT, 12) == alone


def test_a_rank_of_a_group_tells_what_its_exchanges_took(
    manifest: ModelManifest, folder: Path
) -> None:
    run = LocalRun(in_one_process(group_plan(manifest, SHAPES["replicated, single"])), folder)
    run.answer(PROMPT, 12)
    counts = {report.rank: (len(report.run_ns), len(report.exchange_ns)) for report in run.reports}
    assert counts == {0: (11, 11), 1: (11, 11), 2: (11, 0)}
    assert all(0 < time for report in run.reports for time in report.exchange_ns)


@pytest.mark.parametrize("head", ["last", "first"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_gives_the_bits_of_one_device_within_its_ledger(
    name: str, head: str, manifest: ModelManifest, folder: Path, alone: Answer
) -> None:
    plan = in_one_process(group_plan(manifest, SHAPES[name], head=head))  # type: ignore[arg-type]
    assert plan_problems(plan) == ()
    run = LocalRun(plan, folder)
    assert run.answer(PROMPT, 12) == alone
    for device, columns in run.ranks.allocated_bytes().items():
        planned = plan.device(device).ledger.parts()
        for column, size in columns.items():
            assert size <= planned[column], f"{device} {column}"
