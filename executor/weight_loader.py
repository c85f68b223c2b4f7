"""Weights from safetensors files straight to where they run: only the byte ranges that are needed.

Several threads read. Where a parameter lies in host memory in the file's own dtype, bytes land in
it directly; else they pass through a ring of blocks. Peak memory is the parameters and that ring.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.range_reader import RangeReader
from plancc.executor.weight_blocks import Block, blocks_of, is_direct
from plancc.executor.weight_staging import Lane, StagingBlock, StagingRing, lane_to
from plancc.executor.weights import check_entry
from plancc.ir.errors import BadInput, Stale
from plancc.ir.tensors import TensorPiece
from plancc.ir.weight_index import TensorEntry

__all__ = ["RangeReader", "load_rank"]

_DIRECT_BYTES = 2**23
_AHEAD = 2  # blocks that wait for a thread
OnRead = Callable[[memoryview], None]


def load_rank(
    model: RankModel,
    needed: Sequence[TensorPiece],
    entries: Mapping[str, TensorEntry],
    reader: RangeReader,
    fingerprint: Literal["sampled", "full"] = "sampled",
    lane_to: Callable[[torch.device], Lane] = lane_to,
) -> None:
    """Write every parameter of a rank exactly once, and return when they are written.

    needed: what the plan says the rank holds; it must be what the model has. With a full
    fingerprint, tensors that are read whole are hashed again. Raises BadInput naming a parameter
    that is not covered, Stale naming a tensor whose bytes have changed.
    """
    pieces = model.pieces()
    _check_cover(pieces, needed)
    targets = [model.parameter(piece) for piece in pieces]
    _check_apart(pieces, targets)
    loading = _Loading(reader, lane_to)
    for piece, target in zip(pieces, targets, strict=True):
        entry = entries.get(piece.spec.name)
        if problem := check_entry(piece, entry):
            raise BadInput(f"weights: {problem}")
        assert entry is not None
        is_hashed = fingerprint == "full" and piece.span is None
        loading.add(piece, entry, target, _Hash(entry).update if is_hashed else None)
    loading.finish()


class _Hash:
    """sha256 of a tensor's bytes as they come, compared with the index at the last one."""

    def __init__(self, entry: TensorEntry) -> None:
        self._entry, self._left, self._digest = entry, entry.bytes, hashlib.sha256()

    def update(self, memory: memoryview) -> None:
        self._digest.update(memory)
        self._left -= len(memory)
        if self._left == 0:
            self._compare(self._digest.hexdigest())

    def _compare(self, found: str) -> None:
        entry = self._entry
        if found != entry.sha256:
            raise Stale((f"tensor {entry.name} in {entry.file}: sha256 was {entry.sha256}, "
                         f"its bytes now give {found}",))  # fmt: skip


@dataclass(frozen=True)
class _Reading:
    """A block under way from its file; `staged` where it does not land in its parameter."""

    block: Block
    memory: memoryview
    staged: StagingBlock | None
    future: "Future[None]"
    on_read: OnRead | None


@dataclass
class _Loading:
    """Blocks under way, finished in the order in which they began."""

    reader: RangeReader
    lane_to: Callable[[torch.device], Lane]
    _readings: deque[_Reading] = field(default_factory=deque)
    _rings: dict[torch.device, StagingRing] = field(default_factory=dict)

    def add(
        self, piece: TensorPiece, entry: TensorEntry, target: torch.Tensor, on_read: OnRead | None
    ) -> None:
        """Begin to fill a parameter; `on_read` hears of its bytes in order."""
        ring = None if is_direct(entry, target) else self._ring(target.device)
        size = ring.lane.block_bytes if ring else _DIRECT_BYTES
        for block in blocks_of(piece, entry, target, size):
            while len(self._readings) >= self._most:
                self._end_oldest()
            staged = ring.take(block.size_bytes) if ring else None
            memory = _bytes_of(staged.memory if staged else block.target)[: block.size_bytes]
            future = self.reader.start(block.file, block.ranges, memory)
            self._readings.append(_Reading(block, memory, staged, future, on_read))

    def finish(self) -> None:
        while self._readings:
            self._end_oldest()
        for ring in self._rings.values():
            ring.lane.finish()

    @property
    def _most(self) -> int:
        """Blocks that are read, or wait for a thread, at once."""
        return self.reader.num_threads + _AHEAD

    def _end_oldest(self) -> None:
        reading = self._readings.popleft()
        reading.future.result()
        if reading.on_read:
            reading.on_read(reading.memory)
        if reading.staged:
            block = reading.block
            self._ring(block.target.device).copy(reading.staged, block.target, block.dtype)

    def _ring(self, device: torch.device) -> StagingRing:
        if device not in self._rings:
            self._rings[device] = StagingRing(self.lane_to(device), self._most)
        return self._rings[device]


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


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor on the host."""
    return tensor.view(-1).view(torch.uint8).numpy().data
