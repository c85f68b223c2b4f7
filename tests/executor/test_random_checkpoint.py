"""The generator of random checkpoints: what it writes is a model like any other."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plancc_checkpoints import TinyLlama, config_of, decode, encode
from plancc_cpu_ranks import runtime_of
from plancc_local_run import LocalRun
from plancc_model_folders import run_manifest
from plancc_plans import build_plan
from plancc_random_checkpoint import shape_named, tensor_shapes, write_random_checkpoint
from plancc_random_numbers import LENGTHS, RandomNumbers
from plancc_run import environment
from safetensors import safe_open

from plancc.compiler.frontends.architectures import read_architecture
from plancc.executor.backend.cuda_limits import check_runnable
from plancc.ir.errors import BadInput
from plancc.ir.layers import num_tiles
from plancc.ir.manifest import ModelShape, read_manifest

SUPPORT = Path(__file__).parents[1] / "support"


def tiny(**fields: object) -> ModelShape:
    config = config_of(TinyLlama(**fields))  # type: ignore[arg-type]
    return read_architecture(config, where="tiny", name="tiny").shape


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def values_of(folder: Path) -> dict[str, np.ndarray]:
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            found |= {name: file.get_tensor(name).float().numpy() for name in file.keys()}
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_ones(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for folder, seed in ((one, 7), (same, 7), (other, 8)):
        write_random_checkpoint(folder, tiny(), seed)
    assert digests(one) == digests(same)
    differing = {name for name, text in digests(other).items() if text != digests(one)[name]}
    assert differing == {"model.safetensors"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_numbers_are_of_the_spread_that_is_promised_and_never_zero(
    tmp_path: Path, dtype: str
) -> None:
    shape = tiny(hidden_size=128, intermediate_size=384, dtype=dtype)
    write_random_checkpoint(tmp_path / "m", shape, seed=3)
    values = values_of(tmp_path / "m")
    assert {name: array.shape for name, array in values.items()} == tensor_shapes(shape)
    for name, array in values.items():
        assert np.all(array != 0)
        if name.endswith("norm.weight"):
            assert abs(array.mean() - 1) < 0.05
            assert 0.07 < array.std() < 0.13
        elif name != "model.embed_tokens.weight":
            assert array.std() == pytest.approx(array.shape[1] ** -0.5, rel=0.03)
            assert abs(array.mean()) < 0.01


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    """Against the rounding of the small checkpoints, which is another piece of code."""
    wide, narrow = (RandomNumbers(5, dtype, 1000) for dtype in ("float32", "bfloat16"))
    rows = [b"".join(numbers.parts("w", (40, 25))) for numbers in (wide, narrow)]
    assert encode(decode(rows[0], "float32"), "bfloat16") == rows[1]


@pytest.mark.parametrize(("rows", "columns"), [(2048, 64), (911, 72), (128, 512)])
def test_no_two_rows_are_equal_even_where_the_block_comes_round(rows: int, columns: int) -> None:
    numbers = RandomNumbers(0, "bfloat16", 1)
    data = np.frombuffer(b"".join(numbers.parts("w", (rows, columns))), "<u2")
    assert len(np.unique(data.reshape(rows, columns), axis=0)) == rows
    assert LENGTHS[0] <= rows * columns


@pytest.mark.parametrize("tied", [True, False])
def test_plancc_manifest_reads_it_and_the_cpu_computes_finite_logits(
    tmp_path: Path, tied: bool
) -> None:
    folder, path = tmp_path / "toy", tmp_path / "model.yaml"
    written = write_random_checkpoint(folder, tiny(tied=tied), seed=3, shard_bytes=60_000)
    assert written.num_shards > 2
    assert all(file.stat().st_size < 110_000 for file in folder.glob("*.safetensors"))
    ran = run_manifest(folder, "-o", str(path))
    assert ran.exit_code == 0, ran.output
    assert ran.stderr == ""
    manifest = read_manifest(path)
    assert manifest.weights is not None
    assert sum(entry.bytes for entry in manifest.weights.tensors) == written.size_bytes
    plan = build_plan(manifest, (0, 2, 4), kind="cpu", context=64)
    answer = LocalRun(plan, folder).answer([5, 9, 33, 2], max_tokens=12)  # NonFinite would raise
    assert len(set(answer.tokens)) > 4


@pytest.mark.parametrize(
    ("name", "size_gb"),
    [("llama-3.1-8b", 16.06), ("llama-8b", 16.06), ("smollm2-135m", 0.27), ("llama-3.3-70b", 141.1),
     ("mistral-small-24b", 47.14),
     ("tiny", 0.00066)],
)  # fmt: skip
def test_named_shapes_are_as_large_as_the_models_are(name: str, size_gb: float) -> None:
    shape = shape_named(name)
    itemsize = 4 if shape.dtype == "float32" else 2
    size = sum(int(np.prod(dims)) for dims in tensor_shapes(shape).values()) * itemsize
    assert size / 1e9 == pytest.approx(size_gb, rel=0.01)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [("qwen3-8b", "norms of q and k"), ("gemma-3-27b", "GELU"), ("qwen3.6-27b", "layers of kinds")],
)
def test_a_family_that_does_not_run_is_refused_by_what_it_lacks(name: str, lacks: str) -> None:
    expected = rf"family '.*' can be compiled but not run: .*{lacks}.*--as-llama"
    with pytest.raises(BadInput, match=expected):
        shape_named(name)


@pytest.mark.parametrize(
    ("name", "size_gb"), [("qwen3-8b", 16.38), ("qwen3-32b", 65.5), ("gemma-3-27b", 54.0)]
)
def test_a_llama_of_its_sizes_is_as_large_but_for_small_norms(name: str, size_gb: float) -> None:
    shape = shape_named(name, is_llama=True)
    size = sum(int(np.prod(dims)) for dims in tensor_shapes(shape).values()) * 2
    assert size / 1e9 == pytest.approx(size_gb, rel=0.001)
    runtime = runtime_of(shape, context=4096, slots=64)
    check_runnable(shape, runtime, (0, len(shape.layers)), (0, num_tiles(shape.layers[0])))


def test_layers_that_differ_are_no_llama() -> None:
    with pytest.raises(BadInput, match="expected all layers alike, of attention and a dense MLP"):
        shape_named("qwen3.6-27b", is_llama=True)
    with pytest.raises(BadInput, match="expected all layers alike"):
        shape_named("qwen3-30b-a3b", is_llama=True)


def test_the_command_line_says_how_fast_it_wrote_and_refuses_a_full_folder(tmp_path: Path) -> None:
    words = [sys.executable, SUPPORT / "plancc_random_checkpoint.py", "tiny", tmp_path / "out",
             "--dtype", "bfloat16"]  # fmt: skip
    first, second = (
        subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
        for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert "GB/s" in first.stdout
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    assert second.returncode == 1
    assert "expected a new or empty folder" in second.stderr
