"""Plans as the compiler makes them: the executor runs what they say, within what they pay for."""

from pathlib import Path

import pytest
from plancc_builders import KIB, build_device, build_topology
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_local_run import LocalRun

from plancc.compiler.api import compile
from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.ir.ask import Ask
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan

SPEC = TinyLlama(num_layers=7, dtype="bfloat16")
PROMPT = [(11 * index + 5) % 320 for index in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("compiled") / "toy", SPEC)


@pytest.fixture(scope="module")
def manifest(folder: Path) -> ModelManifest:
    return manifest_of_folder(folder).manifest


def plan_of(manifest: ModelManifest, size: int, **flags: object) -> Plan:
    """A plan over up to four CPU devices of `size` bytes, each its own process."""
    devices = [
        build_device(f"cpu{index}", size, gb_s=8.0, kind="cpu", threads=1) for index in range(4)
    ]
    topology = build_topology(devices, latency_us=150.0, gb_s=2.0, mode="network")
    values = {"context": 128, "prefill_chunk": 32} | flags
    return compile(manifest, topology, Ask.model_validate(values))


@pytest.mark.parametrize(
    "flags",
    [
        {"devices": ("cpu2", "cpu0"), "stage_layers": (2, 5)},
        {"devices": ("cpu0", "cpu1", "cpu2", "cpu3"), "stage_layers": (1, 2, 2, 2)},
        {"devices": ("cpu0", "cpu1"), "stage_layers": (4, 3), "head": "first"},
        {"devices": ("cpu0", "cpu0"), "stage_layers": (3, 4)},
        {"slots": 2, "prefill_chunk": 7},
        {"tp": "2"},
        {"tp": "2", "devices": ("cpu0", "cpu2", "cpu1", "cpu3"), "stage_layers": (3, 4)},
        {"tp": "3", "slots": 2},
    ],
)
def test_every_compiled_plan_gives_the_bits_of_one_device_within_its_ledger(
    manifest: ModelManifest, folder: Path, flags: dict[str, object]
) -> None:
    whole = LocalRun(plan_of(manifest, 4096 * KIB), folder).answer(PROMPT)
    plan = plan_of(manifest, 4096 * KIB, **flags)
    run = LocalRun(plan, folder)
    assert run.answer(PROMPT) == whole
    for name, columns in run.ranks.allocated_bytes().items():
        planned = plan.device(name).ledger.parts()
        for column, size in columns.items():
            assert size <= planned[column], f"{name} {column}"


def test_a_model_that_no_device_holds_alone_runs_over_several(
    manifest: ModelManifest, folder: Path
) -> None:
    whole = LocalRun(plan_of(manifest, 4096 * KIB), folder).answer(PROMPT)
    plan = plan_of(manifest, 700 * KIB)
    assert len(plan.stages) > 1
    assert LocalRun(plan, folder).answer(PROMPT) == whole
