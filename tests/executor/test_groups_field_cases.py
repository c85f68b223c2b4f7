"""E01, L07, E05, C11 in TP groups: biases once, fused matrices cut part by part, overflow named."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plancc_checkpoints import (
    CODES,
    TinyLlama,
    encode,
    tensor_values,
    write_checkpoint,
    write_safetensors,
)
from plancc_group_plans import Mixer, group_plan, stage
from plancc_local_run import Answer, LocalRun
from plancc_plans import manifest_of

from plancc.executor.failures import NonFinite
from plancc.executor.step_codec import ReportAsk
from plancc.ir.legality import plan_problems
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.tensors import rank_pieces
from plancc.ir.weight_folder import weight_index

PROMPT = [7, 3, 250, 12, 99, 4, 31, 18, 200, 45, 6, 77, 5, 150, 33, 21, 8, 64, 9]
Values = Mapping[str, np.ndarray[Any, Any]]
BIASED = TinyLlama(num_layers=3, hidden_size=8, intermediate_size=12, num_heads=2, num_kv_heads=1,
                   vocab_size=260, mlp_bias=True)  # fmt: skip
FUSED = TinyLlama(num_layers=2, hidden_size=32, intermediate_size=96, num_heads=2, num_kv_heads=1,
                  vocab_size=260, dtype="bfloat16")  # fmt: skip


def write_model(
    folder: Path, spec: TinyLlama, change: Callable[[Values], Values], **mlp: Any
) -> ModelManifest:
    """A checkpoint whose tensors were changed, and its manifest."""
    write_checkpoint(folder, spec)
    tensors = change(tensor_values(spec))
    write_safetensors(
        folder / "model.safetensors",
        {name: (CODES[spec.dtype], values.shape, encode(values, spec.dtype))
         for name, values in tensors.items()},
    )  # fmt: skip
    manifest = manifest_of(folder, spec)
    layer = manifest.layers[0]
    assert layer.mlp is not None
    changed = layer.model_copy(update={"mlp": layer.mlp.model_copy(update=mlp)})
    return manifest.model_copy(
        update={"layers": (changed,) * spec.num_layers, "weights": weight_index(folder)}
    )


def answer_of(
    manifest: ModelManifest, folder: Path, tiles: tuple[int, ...] = (), mixer: Mixer = "replicated"
) -> Answer:
    """All layers in one stage, its MLPs cut at `tiles`, all ranks on this thread."""
    names = ("cpu0",) * (len(tiles) + 1)
    shape = stage(
        (0, len(manifest.layers)), *names, tiles=tiles, mixer=mixer if tiles else "single"
    )
    plan = group_plan(manifest, [shape])
    assert plan_problems(plan) == ()
    return LocalRun(plan, folder).answer(PROMPT)


def with_large_bias(values: Values) -> Values:
    down = {name: np.arange(100, 900, 100, dtype=np.float32)
            for name in values if name.endswith("down_proj.bias")}  # fmt: skip
    return {**values, **down}


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelManifest, Path, Answer]:
    folder = tmp_path_factory.mktemp("bias") / "toy"
    both = 2 * 12 * 4
    manifest = write_model(folder, BIASED, with_large_bias, uncut_bytes=8 * 4,
                           weight_bytes=3 * 8 * 12 * 4 + both)  # fmt: skip
    assert manifest.geometry is not None
    geometry = manifest.geometry.model_copy(update={"mlp_bias": True})
    manifest = manifest.model_copy(update={"geometry": geometry})
    return manifest, folder, answer_of(manifest, folder)


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
@pytest.mark.parametrize("tiles", [(6,), (5, 9), (11,), (1, 2, 3)])
def test_e01_a_large_bias_of_down_is_added_once_in_every_group(
    tiles: tuple[int, ...], mixer: Mixer, biased: tuple[ModelManifest, Path, Answer]
) -> None:
    manifest, folder, alone = biased
    assert answer_of(manifest, folder, tiles, mixer) == alone


def test_e01_biases_of_gate_and_up_are_cut_with_their_rows_and_that_of_down_is_not(
    biased: tuple[ModelManifest, Path, Answer],
) -> None:
    model = biased[0].shape()
    for share, has_mixer in (((0, 6), True), ((6, 12), True), ((6, 12), False)):
        pieces = rank_pieces(model, (0, 1), share=share, has_mixer=has_mixer)
        shapes = {piece.spec.name.split("mlp.")[-1]: piece.shape for piece in pieces
                  if piece.spec.name.endswith("bias")}  # fmt: skip
        cut: dict[str, tuple[int, ...]] = {"gate_proj.bias": (6,), "up_proj.bias": (6,)}
        assert shapes == cut | ({"down_proj.bias": (8,)} if has_mixer else {})


def test_e01_a_share_of_no_tiles_is_refused(biased: tuple[ModelManifest, Path, Answer]) -> None:
    plan = group_plan(biased[0], [stage((0, 3), "cpu0", "cpu1", tiles=(11,), mixer="replicated")])
    data = plan.data()
    for rank, tiles in zip(data["stages"][0]["ranks"], ([0, 12], [12, 12]), strict=True):
        rank["mlp_tiles"] = tiles
    plan = Plan.model_validate(data)
    assert any("expected runs that cover [0, 12)" in text for text in plan_problems(plan))


def fuse(values: Values, layout: str) -> Values:
    """Gate and up of each layer in one matrix of twice the rows."""
    out = dict(values)
    for name in [name for name in values if "gate_proj" in name]:
        gate, up = out.pop(name), out.pop(name.replace("gate_proj", "up_proj"))
        both = np.concatenate([gate, up])
        if layout == "interleaved":
            both = np.stack([gate, up], axis=1).reshape(both.shape)
        out[name.replace("gate_proj", "gate_up_proj")] = both
    return out


@pytest.mark.parametrize("layout", ["concatenated", "interleaved"])
@pytest.mark.parametrize(
    ("inner", "tiles"), [(96, ()), (96, (8,)), (96, (5, 11)), (3, (2,)), (3, (1, 2))]
)
def test_l07_a_fused_matrix_is_cut_part_by_part(
    inner: int, tiles: tuple[int, ...], layout: str, tmp_path: Path
) -> None:
    """Against the same weights apart, on one device. F = 3 in two shares is 2 + 1."""
    spec = replace(FUSED, intermediate_size=inner)
    apart = write_model(tmp_path / "apart", spec, dict)
    fused = write_model(tmp_path / layout, spec, lambda values: fuse(values, layout), fused=layout)
    expected = answer_of(apart, tmp_path / "apart")
    assert answer_of(fused, tmp_path / layout, tiles) == expected


def test_l07_the_layout_is_never_guessed(tmp_path: Path) -> None:
    """Without the marker the matrix has another name and shape than the family's."""
    manifest = write_model(tmp_path / "m", FUSED, lambda values: fuse(values, "interleaved"))
    with pytest.raises(Exception, match=r"gate_proj\.weight: the plan needs it"):
        answer_of(manifest, tmp_path / "m")


def overflowing(values: Values) -> Values:
    """Layer 2's up is so large that silu(gate) * up passes 65504."""
    name = "model.layers.2.mlp.up_proj.weight"
    return {**values, name: values[name] * np.float32(3e4)}


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
def test_e05_an_overflow_in_a_group_ends_the_request_and_names_its_stage(
    mixer: Mixer, tmp_path: Path
) -> None:
    shape = [stage((0, 2), "cpu0"), stage((2, 4), "cpu1", "cpu1", tiles=(9,), mixer=mixer)]
    for dtype in ("bfloat16", "float16"):
        spec = TinyLlama(num_layers=4, vocab_size=260, dtype=dtype)
        manifest = write_model(tmp_path / dtype, spec, overflowing)
        run = LocalRun(group_plan(manifest, shape), tmp_path / dtype)
        if dtype == "bfloat16":
            assert len(run.answer(PROMPT).tokens) == 8
            continue
        for _ in range(2):  # the slot is given back each time
            with pytest.raises(NonFinite):
                run.answer(PROMPT)
        run.reports.clear()
        run.engine.ask_reports(ReportAsk(0, 0, wants_kv=False))
        finite = {report.rank: report.is_finite for report in run.reports}
        assert finite[0]
        assert not finite[1]


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
@pytest.mark.parametrize("ranks", [2, 3, 5, 6, 7, 8])
def test_c11_five_heads_and_one_kv_head_run_in_groups_of_any_size(
    ranks: int, mixer: Mixer, five_heads: tuple[ModelManifest, Path, Answer]
) -> None:
    """Hidden 64, heads 5, kv 1, intermediate 96: groups of 3 have no third of a head to cut."""
    manifest, folder, alone = five_heads
    tiles = tuple(-(-16 * rank // ranks) for rank in range(1, ranks))
    assert answer_of(manifest, folder, tiles, mixer) == alone


@pytest.fixture(scope="module")
def five_heads(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelManifest, Path, Answer]:
    folder = tmp_path_factory.mktemp("c11") / "toy"
    spec = TinyLlama(num_layers=2, hidden_size=64, num_heads=5, num_kv_heads=1, head_dim=12,
                     intermediate_size=96, vocab_size=260)  # fmt: skip
    manifest = write_model(folder, spec, dict)
    return manifest, folder, answer_of(manifest, folder)
