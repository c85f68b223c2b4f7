"""Weights read by several threads: in order where it matters, bounded, whole or not at all."""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from plancc_checkpoints import write_safetensors

from plancc.executor import range_reader, weight_loader
from plancc.executor.range_reader import RangeReader
from plancc.executor.weight_loader import load_rank
from plancc.ir.errors import BadInput, Stale
from plancc.ir.tensors import TensorPiece, TensorSpec
from plancc.ir.weight_folder import weight_index

SHAPES = {"a": (37, 50), "b": (1001,), "c": (64, 64), "d": (3, 700)}


@dataclass
class Parameters:
    tensors: dict[TensorPiece, torch.Tensor]

    def pieces(self) -> tuple[TensorPiece, ...]:
        return tuple(self.tensors)

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self.tensors[piece]


@dataclass
class LateLane:
    """Copies only when it is waited for, as a device may; its memory is garbage when it is new."""

    block_bytes: int = 512
    num_copying: int = 3
    given: int = 0
    pending: list[Callable[[], None]] = field(default_factory=list)

    def new_memory(self, size_bytes: int) -> torch.Tensor:
        self.given += 1
        return torch.full((size_bytes,), 0xAB, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, memory: torch.Tensor) -> Callable[[], None]:
        is_done = False

        def do() -> None:
            nonlocal is_done
            if not is_done:
                target.copy_(memory)
            is_done = True

        self.pending.append(do)
        return do

    def finish(self) -> None:
        for do in self.pending:
            do()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stored(tmp_path, 0)


def stored(folder: Path, seed: int) -> Path:
    rows = {name: ("F32", shape, values(name, seed).tobytes()) for name, shape in SHAPES.items()}
    write_safetensors(folder / "model.safetensors", rows)
    return folder


def values(name: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, ord(name)]).random(SHAPES[name], dtype=np.float32)


def parameters(cut: str = "whole", dtype: torch.dtype = torch.float32) -> Parameters:
    pieces = [TensorPiece(TensorSpec(name, shape, cut if len(shape) > 1 else "whole"),  # type: ignore
                          (5, 33) if cut == "columns" and len(shape) > 1 else None)
              for name, shape in SHAPES.items()]  # fmt: skip
    return Parameters({piece: torch.full(piece.shape, torch.nan, dtype=dtype) for piece in pieces})


def check(rank: Parameters) -> None:
    for piece, tensor in rank.tensors.items():
        whole = values(piece.spec.name)
        expected = whole[:, slice(*piece.span)] if piece.span else whole
        assert torch.equal(tensor, torch.from_numpy(expected.copy()).to(tensor.dtype))


def load(
    folder: Path,
    rank: Parameters,
    lane: LateLane | None = None,
    kind: str = "sampled",
    **on: object,
) -> RangeReader:
    index = weight_index(folder, kind)  # type: ignore[arg-type]
    on_bytes = on.get("on_bytes", lambda count: None)
    with RangeReader(folder, on_bytes, num_threads=4) as reader:  # type: ignore[arg-type]
        extra = {"lane_to": lambda device: lane} if lane else {}
        load_rank(rank, rank.pieces(), index.by_name(), reader, index.fingerprint, **extra)  # type: ignore
    return reader


@pytest.fixture
def erratic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads end in any order, and bring less than was asked for."""
    real, rng = os.preadv, random.Random(5)

    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        time.sleep(rng.random() * 2e-3)
        return real(descriptor, [buffers[0][: rng.randint(1, 700)]], offset)

    monkeypatch.setattr(range_reader.os, "preadv", preadv)
    monkeypatch.setattr(weight_loader, "_DIRECT_BYTES", 512)


@pytest.mark.parametrize("cut", ["whole", "columns"])
@pytest.mark.parametrize("kind", ["sampled", "full"])
@pytest.mark.usefixtures("erratic")
def test_reads_that_end_in_any_order_fill_every_parameter(
    folder: Path, cut: str, kind: str
) -> None:
    """With a full fingerprint the bytes are hashed in the order of the file nevertheless."""
    rank = parameters(cut)
    reader = load(folder, rank, kind=kind)
    check(rank)
    assert reader.bytes_read == sum(tensor.numel() * 4 for tensor in rank.tensors.values())


@pytest.mark.parametrize("cut", ["whole", "columns"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("erratic")
def test_a_block_is_written_again_only_when_its_copy_is_done(
    folder: Path, cut: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_loader, "is_direct", lambda entry, target: False)
    rank, lane = parameters(cut, dtype), LateLane()
    load(folder, rank, lane, kind="full")
    check(rank)
    assert len(lane.pending) > 30
    assert lane.given == 4 + 2 + lane.num_copying, "threads, waiting for one, and copying"


def test_a_row_that_is_longer_than_a_block_passes_too(folder: Path) -> None:
    rank, buffer = parameters(), torch.zeros(3, 900)
    strided = next(piece for piece in rank.tensors if piece.spec.name == "d")
    rank.tensors = {strided: buffer[:, 100:800]}
    load(folder, rank, LateLane())
    check(rank)
    assert buffer[:, :100].abs().sum() == buffer[:, 800:].abs().sum() == 0


@pytest.mark.usefixtures("erratic")
def test_progress_is_told_by_one_thread_at_a_time_and_is_all_of_it(folder: Path) -> None:
    inside, told, total = threading.Lock(), list[int](), 0

    def on_bytes(count: int) -> None:
        nonlocal total
        assert inside.acquire(blocking=False), "two threads at once"
        before = total
        time.sleep(1e-4)
        total = before + count
        told.append(count)
        inside.release()

    reader = load(folder, parameters(), on_bytes=on_bytes)
    assert total == reader.bytes_read == sum(np.prod(shape) for shape in SHAPES.values()) * 4
    assert max(told) <= range_reader.READ_BYTES


@pytest.mark.usefixtures("erratic")
def test_a_file_that_ends_early_is_told_and_no_thread_goes_on(folder: Path) -> None:
    index, rank = weight_index(folder), parameters()
    entry = index.by_name()["c"]
    os.truncate(folder / "model.safetensors", entry.offset + 5000)
    with (
        RangeReader(folder, lambda count: None, num_threads=4) as reader,
        pytest.raises(
            BadInput, match=r"model.safetensors: expected \d+ bytes at \d+, the file end"
        ),
    ):
        load_rank(rank, rank.pieces(), index.by_name(), reader)  # type: ignore[arg-type]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weights")]
    seen = reader.bytes_read
    time.sleep(0.01)
    assert reader.bytes_read == seen


@pytest.mark.usefixtures("erratic")
def test_one_changed_byte_is_found_though_blocks_end_in_any_order(folder: Path) -> None:
    index, rank = weight_index(folder, "full"), parameters()
    path, entry = folder / "model.safetensors", index.by_name()["c"]
    data = bytearray(path.read_bytes())
    data[entry.offset + 9001] ^= 4
    path.write_bytes(data)
    with (
        RangeReader(folder, lambda count: None) as reader,
        pytest.raises(Stale, match=r"tensor c in .*: sha256 was"),
    ):
        load_rank(rank, rank.pieces(), index.by_name(), reader, "full")  # type: ignore[arg-type]


def test_files_are_closed_and_a_thread_keeps_but_one_open(tmp_path: Path) -> None:
    rank, entries, before = Parameters({}), {}, set(os.listdir("/proc/self/fd"))
    for number in range(9):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, entry in weight_index(stored(folder, 0)).by_name().items():
            file = f"{number}/model.safetensors"
            entries[f"{number}.{name}"] = entry.model_copy(update={"file": file})
            piece = TensorPiece(TensorSpec(f"{number}.{name}", SHAPES[name]))
            rank.tensors[piece] = torch.zeros(SHAPES[name])
    with RangeReader(tmp_path, lambda count: None, num_threads=3) as reader:
        load_rank(rank, rank.pieces(), entries, reader)  # type: ignore[arg-type]
        assert len(reader._open) <= 3
    assert set(os.listdir("/proc/self/fd")) == before
    for piece, tensor in rank.tensors.items():
        assert torch.equal(tensor, torch.from_numpy(values(piece.spec.name[-1])))
