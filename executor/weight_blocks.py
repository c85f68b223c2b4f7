"""Which bytes of which file a parameter consists of, in blocks that are read one by one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import torch

from plancc.executor.range_reader import Range
from plancc.ir.dtype import SAFETENSORS_DTYPE, SAFETENSORS_ITEMSIZE
from plancc.ir.tensors import TensorPiece
from plancc.ir.weight_index import TensorEntry


@dataclass(frozen=True)
class Block:
    """A part of a parameter, and where its numbers lie in a file, in the parameter's order."""

    target: torch.Tensor
    file: str
    ranges: tuple[Range, ...]
    dtype: torch.dtype  # in the file

    @property
    def size_bytes(self) -> int:
        """In the file."""
        return self.target.numel() * self.dtype.itemsize


def is_direct(entry: TensorEntry, target: torch.Tensor) -> bool:
    """Whether the file's bytes are the parameter's, and may be read to where it lies."""
    return (
        target.device.type == "cpu" and target.is_contiguous() and file_dtype(entry) == target.dtype
    )


def file_dtype(entry: TensorEntry) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, SAFETENSORS_DTYPE[entry.dtype])
    return dtype


def blocks_of(
    piece: TensorPiece, entry: TensorEntry, target: torch.Tensor, block_bytes: int
) -> Iterator[Block]:
    """Blocks of at most so many bytes of the file (or one row of a strided parameter), in order."""
    dtype = file_dtype(entry)
    rows = target.view(-1) if target.is_contiguous() else target
    row_bytes = prod(rows.shape[1:]) * dtype.itemsize
    parts = torch.split(rows, max(1, block_bytes // row_bytes))
    ranges = _cut(byte_ranges(piece, entry), (part.numel() * dtype.itemsize for part in parts))
    for part, its_ranges in zip(parts, ranges, strict=True):
        yield Block(part, entry.file, its_ranges, dtype)


def byte_ranges(piece: TensorPiece, entry: TensorEntry) -> Iterator[Range]:
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


def _cut(ranges: Iterator[Range], sizes: Iterable[int]) -> Iterator[tuple[Range, ...]]:
    """The ranges in parts of those sizes, in order."""
    offset, left = 0, 0
    for size in sizes:
        part = []
        while size:
            if not left:
                offset, left = next(ranges)
            count = min(left, size)
            part.append((offset, count))
            offset, left, size = offset + count, left - count, size - count
        yield tuple(part)
