"""Weights from safetensors files straight to where they run: only the byte ranges that are needed.

Ranges are read, never mapped, so no page of another rank's tensor is touched. Where a parameter
lies in host memory in the file's own dtype, bytes land in it directly; else they pass through one
staging block. Peak memory is the parameters and that block.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.weights import check_entry
from plancc.ir.dtype import SAFETENSORS_DTYPE, SAFETENSORS_ITEMSIZE
from plancc.ir.errors import BadInput, Stale
from plancc.ir.tensors import TensorPiece
from plancc.ir.weight_index import TensorEntry

READ_BYTES = 2**20  # a slow disk shows progress, a fast one is not held up
OnBytes = Callable[[int], None]


@dataclass
class RangeReader:
    """Reads byte ranges of a folder's files and counts them."""

    folder: Path
    on_bytes: OnBytes
    bytes_read: int = 0
    _files: dict[str, int] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._open.close()

    def read(self, file: str, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on. Raises BadInput when the file ends before."""
        if file not in self._files:
            descriptor = os.open(self.folder / file, os.O_RDONLY | os.O_CLOEXEC)
            self._files[file] = descriptor
            self._open.callback(os.close, descriptor)
        done = 0
        while done < len(target):
            block = target[done : done + READ_BYTES]
            count = os.preadv(self._files[file], [block], offset + done)
            if count == 0:
                raise BadInput(f"{self.folder / file}: expected {len(target)} bytes at {offset}, "
                               f"the file ends after {done} of them")  # fmt: skip
            done += count
            self.bytes_read += count
            self.on_bytes(count)


def load_rank(
    model: RankModel,
    needed: Sequence[TensorPiece],
    entries: Mapping[str, TensorEntry],
    reader: RangeReader,
    fingerprint: Literal["sampled", "full"] = "sampled",
) -> None:
    """Write every parameter of a rank exactly once.

    needed: what the plan says the rank holds; it must be what the model has. With a full
    fingerprint, tensors that are read whole are hashed again. Raises BadInput naming a parameter
    that is not covered, Stale naming a tensor whose bytes have changed.
    """
    pieces = model.pieces()
    _check_cover(pieces, needed)
    targets = [model.parameter(piece) for piece in pieces]
    _check_apart(pieces, targets)
    for piece, target in zip(pieces, targets, strict=True):
        entry = entries.get(piece.spec.name)
        if problem := check_entry(piece, entry):
            raise BadInput(f"weights: {problem}")
        assert entry is not None
        digest = hashlib.sha256() if fingerprint == "full" and piece.span is None else None
        _load_piece(piece, entry, target, reader, digest)
        if digest is not None and digest.hexdigest() != entry.sha256:
            raise Stale((f"tensor {piece.spec.name} in {entry.file}: sha256 was {entry.sha256}, "
                         f"its bytes now give {digest.hexdigest()}",))  # fmt: skip


def byte_ranges(piece: TensorPiece, entry: TensorEntry) -> Iterator[tuple[int, int]]:
    """(offset, bytes) in the file, in the order of the piece's elements."""
    item = SAFETENSORS_ITEMSIZE[entry.dtype]
    row = prod(piece.spec.shape[1:]) * item
    if piece.spec.cut != "columns" or piece.span is None:
        for first, count in piece.row_runs():
            yield entry.offset + first * row, count * row
        return
    first, end = piece.span
    for index in range(piece.spec.shape[0]):
        yield entry.offset + index * row + first * item, (end - first) * item


def _check_cover(pieces: Sequence[TensorPiece], needed: Sequence[TensorPiece]) -> None:
    for name, times in Counter(piece.spec.name for piece in pieces).items():
        if times > 1:
            raise BadInput(f"parameter {name}: would be written {times} times")
    has, wants = set(pieces), set(needed)
    for piece in needed:
        if piece not in has:
            raise BadInput(f"parameter {piece.spec.name} {piece.span or 'whole'}: the plan places "
                           f"it on this rank, and nothing would write it")  # fmt: skip
    for piece in pieces:
        if piece not in wants:
            raise BadInput(f"parameter {piece.spec.name}: the plan gives this rank no such tensor")


def _check_apart(pieces: Sequence[TensorPiece], targets: Sequence[torch.Tensor]) -> None:
    """Parameters are views of shared buffers: right shapes, and no byte written twice."""
    ends = []
    for piece, target in zip(pieces, targets, strict=True):
        assert tuple(target.shape) == piece.shape, f"{piece.spec.name}: {tuple(target.shape)}"
        if target.numel() and target.is_contiguous():
            start = target.data_ptr()
            ends.append((start, start + target.numel() * target.element_size(), piece.spec.name))
    ends.sort()
    for (_, end, name), (start, _, other) in pairwise(ends):
        if start < end:
            raise BadInput(f"parameters {name} and {other}: they share memory, so one of them "
                           f"would be overwritten")  # fmt: skip


def _load_piece(
    piece: TensorPiece, entry: TensorEntry, target: torch.Tensor, reader: RangeReader, digest: Any
) -> None:
    is_direct = (
        target.device.type == "cpu"
        and target.is_contiguous()
        and SAFETENSORS_DTYPE[entry.dtype] == str(target.dtype).removeprefix("torch.")
    )
    ranges = byte_ranges(piece, entry)
    if is_direct:
        _read_into(_bytes_of(target), ranges, entry.file, reader, digest)
        return
    file_dtype = getattr(torch, SAFETENSORS_DTYPE[entry.dtype])
    for rows, block_ranges in _blocks(piece, entry):
        block = target[rows]
        staging = torch.empty(block.shape, dtype=file_dtype)
        _read_into(_bytes_of(staging), block_ranges, entry.file, reader, digest)
        block.copy_(staging)


def _read_into(
    memory: memoryview,
    ranges: Iterator[tuple[int, int]],
    file: str,
    reader: RangeReader,
    digest: Any,
) -> None:
    at = 0
    for offset, size in ranges:
        reader.read(file, offset, memory[at : at + size])
        at += size
    assert at == len(memory), "the ranges are the piece's bytes"
    if digest is not None:
        digest.update(memory)


def _blocks(
    piece: TensorPiece, entry: TensorEntry
) -> Iterator[tuple[slice, Iterator[tuple[int, int]]]]:
    """Runs of rows of at most READ_BYTES (or one row), each with its byte ranges."""
    num_rows, row = piece.shape[0], prod(piece.shape[1:]) * SAFETENSORS_ITEMSIZE[entry.dtype]
    step = max(1, READ_BYTES // max(row, 1))
    is_scattered = piece.span is not None and (piece.spec.cut == "columns" or piece.spec.fused)
    per_row = list(_row_ranges(piece, entry, row)) if is_scattered else []
    start = next(byte_ranges(piece, entry))[0] if num_rows else 0
    for first in range(0, num_rows, step):
        end = min(first + step, num_rows)
        if per_row:
            yield slice(first, end), iter(per_row[first:end])
        else:
            yield slice(first, end), iter([(start + first * row, (end - first) * row)])


def _row_ranges(piece: TensorPiece, entry: TensorEntry, row: int) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of each row of the piece."""
    for offset, size in byte_ranges(piece, entry):
        yield from ((offset + at, row) for at in range(0, size, row))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
