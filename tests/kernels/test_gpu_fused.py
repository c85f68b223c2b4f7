"""L07 on cards, in Triton's interpreter: gate and up in one tensor give the bits of two."""

import os
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_gpu_fused import Layout, write_fused
from plancc_gpu_plans import BACKENDS, on_cards
from plancc_group_plans import group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.ir.manifest import ModelManifest
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
SPEC = TinyLlama(num_layers=1, hidden_size=32, intermediate_size=5, vocab_size=40, num_heads=1,
                 num_kv_heads=1, head_dim=16, dtype="float16")  # fmt: skip


def answer(manifest: ModelManifest, folder: Path, tiles: tuple[int, ...]) -> Answer:
    names = [f"cpu{i}" for i in range(len(tiles) + 1)]
    shape = stage((0, 1), *names, tiles=tiles, mixer="replicated" if tiles else "single")
    plan = on_cards(group_plan(manifest, [shape], context=16))
    return LocalRun(plan, folder, BACKENDS["Interpreted"]).answer([7, 3, 25], 3)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = write_checkpoint(tmp_path_factory.mktemp("apart") / "toy", SPEC)
    return answer(manifest_of(folder, SPEC), folder, ())


@pytest.mark.parametrize("layout", ["concatenated", "interleaved"])
@pytest.mark.parametrize("tiles", [(), (2,)])
def test_l07_a_fused_matrix_gives_the_bits_of_gate_and_up_apart(
    tiles: tuple[int, ...], layout: Layout, apart: Answer, tmp_path: Path
) -> None:
    manifest = write_fused(tmp_path / "toy", SPEC, layout)
    assert answer(manifest, tmp_path / "toy", tiles) == apart


def test_l07_the_layout_is_what_is_declared(apart: Answer, tmp_path: Path) -> None:
    """The same file under the other name is another model."""
    manifest = write_fused(tmp_path / "toy", SPEC, "concatenated")
    layer = manifest.layers[0]
    assert layer.mlp is not None
    mlp = layer.mlp.model_copy(update={"fused": "interleaved"})
    other = manifest.model_copy(update={"layers": (layer.model_copy(update={"mlp": mlp}),)})
    assert answer(other, tmp_path / "toy", ()) != apart
