"""Byte ranges of a folder's files, read by several threads into memory that is given.

Ranges are read, never mapped, so no page of another rank's tensor is touched. A thread keeps one
file open, its own: what the kernel reads ahead is then what that thread asks for next.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from plancc.executor.machine import num_cores
from plancc.ir.errors import BadInput

READ_BYTES = 2**20  # a slow disk shows progress, a fast one is not held up
_MOST_THREADS = 8

OnBytes = Callable[[int], None]
Range = tuple[int, int]  # offset in the file, bytes


class RangeReader:
    """`on_bytes` hears of at most READ_BYTES at a time, from one thread at a time."""

    def __init__(self, folder: Path, on_bytes: OnBytes, num_threads: int | None = None) -> None:
        self.folder = folder
        self.num_threads = num_threads or min(_MOST_THREADS, 2 * num_cores())
        self.bytes_read = 0
        self._on_bytes = on_bytes
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, int]] = {}  # by thread: a file and its descriptor

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self.num_threads, "weights")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Returns when no thread writes to any memory any more."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for _, descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def start(self, file: str, ranges: Sequence[Range], target: memoryview) -> "Future[None]":
        """Begin to fill `target` with the ranges, one after the other.

        The result raises BadInput when the file ends before.
        """
        return self._pool.submit(self._fill, file, ranges, target)

    def _fill(self, file: str, ranges: Sequence[Range], target: memoryview) -> None:
        descriptor, at, untold = self._descriptor(file), 0, 0
        for offset, size in ranges:
            done = 0
            while done < size:
                block = target[at + done : at + min(done + READ_BYTES, size)]
                if untold + len(block) > READ_BYTES:
                    untold = self._tell(untold)
                count = os.preadv(descriptor, [block], offset + done)
                if count == 0:
                    raise BadInput(f"{self.folder / file}: expected {size} bytes at {offset}, "
                                   f"the file ends after {done} of them")  # fmt: skip
                done, untold = done + count, untold + count
            at += size
        assert at == len(target), "the ranges are the target's bytes"
        self._tell(untold)

    def _tell(self, num_bytes: int) -> int:
        """Zero, for what is untold now."""
        with self._lock:
            self.bytes_read += num_bytes
            self._on_bytes(num_bytes)
        return 0

    def _descriptor(self, file: str) -> int:
        me = threading.get_ident()
        name, descriptor = self._open.get(me, ("", -1))
        if name == file:
            return descriptor
        if descriptor >= 0:
            del self._open[me]
            os.close(descriptor)
        descriptor = os.open(self.folder / file, os.O_RDONLY | os.O_CLOEXEC)
        self._open[me] = (file, descriptor)
        return descriptor
