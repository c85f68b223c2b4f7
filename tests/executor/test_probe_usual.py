"""A card is probed with models of usual proportions, and the compiler then predicts real ones."""

from pathlib import Path

import pytest
from plancc_fake_kernels import (
    LAUNCH_US,
    FakeCard,
    Law,
    h200_us,
    layer_us,
    matrices,
    step_us,
    waves_us,
)

from plancc.compiler.api import compile
from plancc.executor import probe_rank, probe_stepper
from plancc.executor.probe_cuda import CudaProbe
from plancc.executor.probe_kinds import GIB, DeclaredDevice
from plancc.executor.probe_model import layer_kernels, usual_model
from plancc.executor.probe_numbers import rising, rounded_points
from plancc.executor.probe_rank import RankProbe
from plancc.ir.ask import Ask
from plancc.ir.curve import Curve
from plancc.ir.dtype import DType
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelManifest, read_manifest
from plancc.ir.topology import Device, Host, Topology
from plancc.kernels.gpu.prompt_tilings import filled_rows

MODELS = Path(__file__).parents[2] / "plans" / "models"
CARD = DeclaredDevice("gpu0", "cuda", "GPU-x", 140 * GIB, 139 * GIB, None)
H200_US = {"qkv": 14.9, "o": 11.0, "gate_up": 57.3, "down": 30.0}


def probe(card: FakeCard, monkeypatch: pytest.MonkeyPatch, *, quick: bool = False) -> RankProbe:
    for module in (probe_rank, probe_stepper):
        monkeypatch.setattr(module, "time", card.clock)
    monkeypatch.setattr(probe_rank, "backend_of", lambda kind: card)
    monkeypatch.setattr(probe_rank, "host_of", lambda kind: card)
    return RankProbe("fake", "GPU-x", 1, "bfloat16", CudaProbe().scale(CARD, is_quick=quick))


def topology(card: FakeCard, monkeypatch: pytest.MonkeyPatch, *, quick: bool = False) -> Topology:
    """As planprobe would write it."""
    points = rounded_points(rising(probe(card, monkeypatch, quick=quick).read_points(LAUNCH_US)))
    device = Device(name="gpu0", host="h0", kind="cuda", total_bytes=140 * GIB,
                    free_bytes=139 * GIB, read_points=points, tflops={"bfloat16": 500.0},
                    launch_us=LAUNCH_US)  # fmt: skip
    return Topology(name="one", hosts=(Host(name="h0", address="127.0.0.1"),), devices=(device,))


def llama() -> ModelManifest:
    return read_manifest(MODELS / "llama-3.1-8b.yaml")


def test_the_law_is_what_was_measured_of_llama_8b() -> None:
    model = llama()
    found = {name: h200_us(*matrix) for name, matrix in matrices(model, model.layers[0]).items()}
    assert found == pytest.approx(H200_US, rel=0.03)
    assert h200_us(128256, 4096) == pytest.approx(236.7, rel=0.03)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("law", [h200_us, waves_us])
def test_a_step_of_llama_8b_takes_what_was_predicted(
    law: Law, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = compile(llama(), topology(FakeCard(law=law), monkeypatch, quick=quick),
                   Ask(context=64))  # fmt: skip
    assert plan.predicted.decode.step_ns / 1e3 == pytest.approx(step_us(llama(), law), rel=0.015)


@pytest.mark.parametrize("law", [h200_us, waves_us])
@pytest.mark.parametrize("name", ["llama-2-13b", "llama-3.1-70b", "qwen3-4b"])
def test_layers_of_other_models_are_near(
    name: str, law: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the probed widths, and of other proportions: as far as bytes alone tell."""
    model = read_manifest(MODELS / f"{name}.yaml")
    curve = topology(FakeCard(law=law), monkeypatch).devices[0].read_curve()
    layer = model.layers[0]
    us = 5 * LAUNCH_US + sum(curve.us(size) for size, _ in layer_kernels(model))
    assert us == pytest.approx(layer_us(model, layer, law), rel=0.03 if law is h200_us else 0.06)


def test_curves_begin_where_only_the_launch_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    (size, us), *more = probe(FakeCard(), monkeypatch).read_points(LAUNCH_US)
    assert (size, us) == (8192, 0.01)
    assert more[-1][0] == GIB
    assert Curve(more).us(GIB) == pytest.approx(h200_us(131072, 4096) - LAUNCH_US, rel=0.01)


def test_a_head_is_what_a_step_takes_longer_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard()
    probe(card, monkeypatch).read_points(LAUNCH_US)
    rows = [(model.hidden_size, model.vocab_size, len(model.layers)) for model in card.opened]
    assert rows == [(512, None, 160), (1024, None, 142), (2048, 131072, 36), (4096, 131072, 10),
                    (8192, None, 4)]  # fmt: skip


def test_usual_models_have_the_proportions_of_real_ones() -> None:
    model, real = usual_model(4096, "bfloat16", 0, has_head=True), llama()
    assert matrices(model, model.layers[0]) == matrices(real, real.layers[0])
    for hidden in (512, 1024, 2048, 8192):
        layer = usual_model(hidden, "bfloat16", 0).layers[0]
        assert isinstance(layer.mlp, DenseMlp)
        assert layer.mlp.intermediate_size is not None
        assert layer.mlp.intermediate_size % (16 * 128) == 0
        assert 3.5 <= layer.mlp.intermediate_size / hidden <= 4


@pytest.mark.parametrize(
    ("free_gib", "widths", "heads", "most"),
    [(139, (512, 1024, 2048, 4096, 8192), (2048, 4096), GIB), (8, (512, 1024, 2048, 4096),
     (2048, 4096), GIB), (3, (512, 1024, 2048), (2048,), GIB // 2), (0.01, (512,), (), GIB // 256)],
)  # fmt: skip
def test_models_that_a_card_has_no_room_for_are_left_out(
    free_gib: float, widths: tuple[int, ...], heads: tuple[int, ...], most: int
) -> None:
    size = int(free_gib * GIB)
    scale = CudaProbe().scale(DeclaredDevice("g", "cuda", None, size, size, None), is_quick=False)
    assert (scale.widths, scale.heads, scale.read_sizes[-1]) == (widths, heads, most)


@pytest.mark.parametrize(("dtype", "itemsize"), [("bfloat16", 2), ("float16", 2), ("float32", 4)])
def test_a_card_says_the_blocks_of_rows_that_its_kernels_have(dtype: DType, itemsize: int) -> None:
    assert CudaProbe().row_block(dtype) == filled_rows(1, itemsize)
