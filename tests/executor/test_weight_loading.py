"""L04, L06: byte ranges only, every parameter once, nothing guessed."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from plancc_checkpoints import CODES, TinyLlama, encode, tensor_values, write_checkpoint
from plancc_checkpoints import write_safetensors as write_file
from plancc_local_run import LocalRun
from plancc_plans import build_plan, manifest_of
from plancc_run import environment

from plancc.executor.weight_loader import RangeReader, load_rank
from plancc.ir.errors import BadInput, Stale
from plancc.ir.tensors import TensorPiece, TensorSpec
from plancc.ir.weight_folder import weight_index

SPEC = TinyLlama(
    num_layers=4, hidden_size=32, intermediate_size=48, num_heads=2, num_kv_heads=1, vocab_size=128
)


@dataclass
class Parameters:
    """A rank that is nothing but its parameters."""

    tensors: dict[TensorPiece, torch.Tensor]

    def pieces(self) -> tuple[TensorPiece, ...]:
        return tuple(self.tensors)

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self.tensors[piece]


def piece_of(name: str, shape: tuple[int, ...], cut: str = "whole", span=None) -> TensorPiece:
    return TensorPiece(TensorSpec(name, shape, cut), span)  # type: ignore[arg-type]


def stored(folder: Path, values: np.ndarray, dtype: str = "float32") -> Path:
    write_file(
        folder / "model.safetensors", {"w": (CODES[dtype], values.shape, encode(values, dtype))}
    )
    return folder


def load(folder: Path, rank: Parameters, **fields: object) -> RangeReader:
    index = weight_index(folder, fields.get("fingerprint", "sampled"))  # type: ignore[arg-type]
    with RangeReader(folder, lambda count: None) as reader:
        load_rank(rank, rank.pieces(), index.by_name(), reader, index.fingerprint)  # type: ignore
    return reader


@pytest.mark.parametrize(
    ("cut", "span"), [("whole", None), ("rows", (3, 8)), ("columns", (5, 11)), ("columns", (0, 12))]
)
@pytest.mark.parametrize("target", ["float32", "bfloat16"])
def test_a_slice_is_its_bytes_and_no_more_are_read(
    tmp_path: Path, cut: str, span: tuple[int, int] | None, target: str
) -> None:
    values = np.arange(10 * 12, dtype=np.float32).reshape(10, 12)
    rank = Parameters({})
    piece = piece_of("w", (10, 12), cut, span)
    rank.tensors[piece] = torch.full(piece.shape, float("nan"), dtype=getattr(torch, target))
    reader = load(stored(tmp_path, values), rank)
    part = slice(*span) if span else slice(None)
    expected = values[part] if cut == "rows" else values[:, part]
    assert torch.equal(rank.tensors[piece].float(), torch.from_numpy(expected.copy()))
    assert reader.bytes_read == expected.size * 4


@pytest.mark.parametrize("layout", ["concatenated", "interleaved"])
@pytest.mark.parametrize("target", ["float32", "bfloat16"])
@pytest.mark.parametrize("span", [(0, 5), (2, 4)])
def test_rows_of_a_fused_matrix_are_gates_then_ups_and_no_more_are_read(
    tmp_path: Path, span: tuple[int, int], target: str, layout: str
) -> None:
    """L07: ten rows are five of gate and five of up, in either order."""
    gate, up = np.arange(60, dtype=np.float32).reshape(2, 5, 6)
    by_turns = np.stack([gate, up], axis=1).reshape(10, 6)
    values = by_turns if layout == "interleaved" else np.concatenate([gate, up])
    piece = TensorPiece(TensorSpec("w", (10, 6), "rows", layout), span)  # type: ignore[arg-type]
    rank = Parameters({piece: torch.full(piece.shape, torch.nan, dtype=getattr(torch, target))})
    reader = load(stored(tmp_path, values), rank)
    expected = np.concatenate([gate[slice(*span)], up[slice(*span)]])
    assert torch.equal(rank.tensors[piece].float(), torch.from_numpy(expected))
    assert reader.bytes_read == expected.size * 4


def test_a_parameter_that_is_a_strided_view_is_filled(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    buffer = torch.zeros(4, 12)
    rank = Parameters({piece_of("w", (4, 6)): buffer[:, 3:9]})
    load(stored(tmp_path, values), rank)
    assert torch.equal(buffer[:, 3:9], torch.from_numpy(values))
    assert buffer[:, :3].abs().sum() == buffer[:, 9:].abs().sum() == 0


def test_parameters_that_share_memory_are_refused_by_name(tmp_path: Path) -> None:
    buffer = torch.zeros(8)
    rank = Parameters({piece_of("a", (5,)): buffer[:5], piece_of("b", (4,)): buffer[4:]})
    with pytest.raises(BadInput, match="parameters a and b: they share memory"):
        load(stored(tmp_path, np.zeros(4, np.float32)), rank)


@pytest.mark.parametrize("missing", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_parameter_that_nothing_would_write_is_named(tmp_path: Path, missing: str) -> None:
    needed = [piece_of("w", (4,)), piece_of(missing, (4,))]
    rank = Parameters({needed[0]: torch.zeros(4)})
    with (
        RangeReader(tmp_path, lambda count: None) as reader,
        pytest.raises(BadInput, match=missing),
    ):
        load_rank(rank, needed, {}, reader)  # type: ignore[arg-type]


def test_a_shape_or_dtype_other_than_the_plans_is_named(tmp_path: Path) -> None:
    folder = stored(tmp_path, np.zeros((4, 3), np.float32))
    rank = Parameters({piece_of("w", (3, 4)): torch.zeros(3, 4)})
    with pytest.raises(BadInput, match=r"w in model.safetensors: expected shape \[3, 4\], found"):
        load(folder, rank)


def test_a_full_fingerprint_is_checked_again_as_the_bytes_come(tmp_path: Path) -> None:
    folder = stored(tmp_path, np.zeros(9000, np.float32))
    index = weight_index(folder, "full")
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5000] ^= 1  # between the samples
    path.write_bytes(data)
    rank = Parameters({piece_of("w", (9000,)): torch.zeros(9000)})
    with RangeReader(folder, lambda count: None) as reader, pytest.raises(Stale, match="tensor w"):
        load_rank(rank, rank.pieces(), index.by_name(), reader, "full")  # type: ignore[arg-type]


def test_progress_is_told_for_every_mebibyte_so_that_a_slow_disk_is_seen_to_move(
    tmp_path: Path,
) -> None:
    folder = stored(tmp_path, np.zeros(900_000, np.float32))
    rank, told = Parameters({piece_of("w", (900_000,)): torch.zeros(900_000)}), list[int]()
    with RangeReader(folder, told.append) as reader:
        load_rank(rank, rank.pieces(), weight_index(folder).by_name(), reader)  # type: ignore
    assert sum(told) == 3_600_000
    assert max(told) <= 2**20


def test_a_file_that_has_shrunk_is_named(tmp_path: Path) -> None:
    folder = stored(tmp_path, np.zeros(9000, np.float32))
    index = weight_index(folder)
    os.truncate(folder / "model.safetensors", 20_000)
    rank = Parameters({piece_of("w", (9000,)): torch.zeros(9000)})
    with (
        RangeReader(folder, lambda count: None) as reader,
        pytest.raises(BadInput, match=r"expected 36000 bytes at .*, the file ends after"),
    ):
        load_rank(rank, rank.pieces(), index.by_name(), reader)  # type: ignore[arg-type]


# --- L04: the head of a tied model, on one stage and on the last of two


def with_head(folder: Path, spec: TinyLlama, head: str) -> Path:
    """A checkpoint whose file has no lm_head, the embedding as lm_head, or another one."""
    values = tensor_values(replace(spec, tied=True))
    if head != "absent":
        values["lm_head.weight"] = values["model.embed_tokens.weight"] * (
            2 if head == "other" else 1
        )
    write_checkpoint(folder, spec)
    write_file(
        folder / "model.safetensors",
        {name: ("F32", array.shape, encode(array, "float32")) for name, array in values.items()},
    )
    return folder


@pytest.mark.parametrize("head", ["absent", "equal"])
def test_a_tied_head_is_written_on_the_last_stage_too(tmp_path: Path, head: str) -> None:
    spec = replace(SPEC, tied=True)
    folder = with_head(tmp_path / "toy", spec, head)
    manifest = manifest_of(folder, spec)
    prompt = [5, 9, 33, 2, 71]
    one = LocalRun(build_plan(manifest, (0, 4)), folder).answer(prompt)
    two = LocalRun(build_plan(manifest, (0, 2, 4)), folder)
    answer = two.answer(prompt)
    assert answer == one
    assert len(set(answer.tokens)) > 1


def test_a_stored_head_is_not_read_where_the_plan_says_tied(tmp_path: Path) -> None:
    """`plancc manifest` asked which is meant (--tied); the plan holds the answer."""
    spec, prompt = replace(SPEC, tied=True), [5, 9, 33, 2, 71]
    answers = []
    for head in ("absent", "other"):
        folder = with_head(tmp_path / head, spec, head)
        plan = build_plan(manifest_of(folder, spec), (0, 2, 4))
        answers.append(LocalRun(plan, folder).answer(prompt).tokens)
    assert answers[0] == answers[1]


def test_an_untied_model_without_a_head_stops_naming_it(tmp_path: Path) -> None:
    folder = with_head(tmp_path / "toy", SPEC, "absent")
    plan = build_plan(manifest_of(folder, SPEC), (0, 2, 4))
    with pytest.raises(BadInput, match=r"tensor lm_head\.weight: the plan needs it"):
        LocalRun(plan, folder)


def test_the_bytes_read_are_the_checkpoint_and_the_declared_duplicate(tmp_path: Path) -> None:
    spec = replace(SPEC, tied=True)
    folder = write_checkpoint(tmp_path / "toy", spec)
    manifest = manifest_of(folder, spec)
    size = sum(entry.bytes for entry in weight_index(folder).tensors)
    embedding = spec.vocab_size * spec.hidden_size * 4
    assert LocalRun(build_plan(manifest, (0, 4)), folder).bytes_read == size
    assert LocalRun(build_plan(manifest, (0, 2, 4)), folder).bytes_read == size + embedding


# --- L06: 64 tensors x 4 MiB, four workers

MIB = 2**20


@pytest.fixture(scope="module")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparse file with the header and the size of 64 matrices of 4 MiB."""
    path = tmp_path_factory.mktemp("big") / "model.safetensors"
    header = {
        f"t{index:02d}": {"dtype": "F32", "shape": [1024, 1024],
                          "data_offsets": [index * 4 * MIB, (index + 1) * 4 * MIB]}
        for index in range(64)
    }  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 256 * MIB)
    return path


def test_a_worker_reads_its_share_and_holds_no_more_than_it(big_file: Path) -> None:
    """64 MiB each, not 256; the peak is the share and a staging block; nothing is mapped."""
    script = Path(__file__).parents[1] / "support" / "plancc_load_share.py"
    done = subprocess.run(
        [sys.executable, "-P", script, big_file], env=environment(), timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["mode"], row["worker"]) for row in rows] == [
        (mode, worker) for mode in ("pipeline", "rows", "columns", "staged") for worker in range(4)
    ]
    for row in rows:
        assert row["counted"] == 64 * MIB, row
        assert row["read"] <= 64 * MIB + MIB, row  # the kernel's own count, index included
        assert row["peak"] <= 64 * MIB + 8 * MIB, row
        assert not row["is_mapped"], row
    for mode in ("pipeline", "rows", "columns", "staged"):
        assert sum(row["counted"] for row in rows if row["mode"] == mode) == 256 * MIB
