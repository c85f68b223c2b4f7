"""Links of rows between ranks of one process: to the target's memory, or through the host's.

Nothing waits on the host. The source's stream writes a slot once the target's stream is done with
what was there before, and the target's stream reads it once it is written: events say so. A ring
of pinned slots stands between devices that cannot reach each other's memory. Either way a few bytes
are sent and compared before a link is used: what drivers say of it may not be true.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from plancc.executor.backend.cuda_memory import allocate
from plancc.executor.probe_payload import KIB, MIB, Carry, payload_problem
from plancc.executor.row_views import RowViews
from plancc.executor.step_codec import Message
from plancc.ir.errors import RunFailed
from plancc.kernels.gpu.copy import copy_rows

if TYPE_CHECKING:
    from plancc.executor.backend.cuda import CudaRank

_CHECKED_SIZES = (KIB, 64 * KIB, MIB)
"""Bytes: writes may be dropped from some size on, or those of less than a page."""
_REMEDY = "measure it again (planprobe --refresh) and compile"


class CudaLink:
    """Both ends. What `take_rows` gives lies on the target's device, or where the source has it
    for rows that are sent in place and that the target can read there."""

    leaves_process = False

    def __init__(
        self,
        source: "CudaRank",
        target: "CudaRank",
        *,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        is_staged: bool,
        in_place: bool,
    ) -> None:
        """Raises RunFailed where rows that are written do not arrive."""
        self._source, self._target, self._slots = source, target, shape[0]
        self._host = _pinned(shape, dtype, source) if is_staged else None
        self._device = None
        if is_staged or not in_place:
            self._device = RowViews(allocate({"rows": (shape, dtype)}, target.device)["rows"])
        if not is_staged:
            _meet(source, target)
        if target.device.type == "cuda":
            torch.cuda.synchronize(target.device)  # slots were zeroed on another stream
        self._free: list[torch.cuda.Event | None] = [None] * self._slots
        self._queue: deque[tuple[torch.Tensor, torch.cuda.Event | None]] = deque()
        self._sent = self._taken = self._freed = 0
        if is_staged:
            self._check()

    @property
    def _has_slots(self) -> bool:
        """Else rows are read where the source has them, and it knows when they were."""
        return self._host is not None or self._device is not None

    @property
    def buffer_bytes(self) -> int:
        """On the target's device."""
        return self._device.buffer.nbytes if self._device else 0

    def forget(self) -> None:
        assert not self._queue, "rows that were sent and not received"
        self._free = [None] * self._slots

    def can_send(self) -> bool:
        return self._sent - self._freed < self._slots

    def send_rows(self, rows: torch.Tensor) -> None:
        slot = self._sent % self._slots
        self._sent += 1
        if self._has_slots:
            with self._source.on_stream():
                rows = self._filled(slot, rows)
        self._queue.append((rows, _recorded(self._source.stream)))

    def _filled(self, slot: int, rows: torch.Tensor) -> torch.Tensor:
        """The slot, with the rows once the target is done with what was there."""
        if (freed := self._free[slot]) is not None:
            assert self._source.stream is not None
            self._source.stream.wait_event(freed)
        if self._host is not None:
            there = self._host.at(slot, rows.shape[0])
            there.copy_(rows, non_blocking=True)
            return there
        assert self._device is not None
        there = self._device.at(slot, rows.shape[0])
        copy_rows(rows, there)
        return there

    def take_rows(self) -> torch.Tensor:
        rows, done = self._queue.popleft()
        slot = self._taken % self._slots
        self._taken += 1
        if done is not None:
            assert self._target.stream is not None
            self._target.stream.wait_event(done)
        if self._host is None or self._device is None:
            return rows
        with self._target.on_stream():
            landed = self._device.at(slot, rows.shape[0])
            landed.copy_(rows, non_blocking=True)
        return landed

    def free(self) -> None:
        assert self._freed < self._taken, "a slot is freed once, after it was taken"
        if self._has_slots:
            self._free[self._freed % self._slots] = _recorded(self._target.stream)
        self._freed += 1

    def _check(self) -> None:
        """Raise RunFailed where rows do not come through the host's memory as they were sent."""
        assert self._host is not None
        row_bytes = self._host.at(0, 1).nbytes
        most = min(self._host.buffer.shape[1], max(1, _CHECKED_SIZES[-1] // row_bytes))
        sizes = tuple(count * row_bytes for count in sorted({1, most}))
        if problem := payload_problem(lambda size: self._carried, sizes):
            raise RunFailed(f"{self._source.device} to {self._target.device}: through memory of "
                            f"the host, {problem}: {_REMEDY}")  # fmt: skip

    def _carried(self, payload: torch.Tensor) -> torch.Tensor:
        assert self._host is not None
        row = self._host.at(0, 1)
        with self._source.on_stream():
            rows = payload.to(self._source.device).view(row.dtype).view(-1, *row.shape[1:])
        self.send_rows(rows)
        arrived = self.take_rows()
        with self._target.on_stream():
            found = arrived.cpu()  # waits
        self.free()
        return found.view(-1).view(torch.uint8)

    def expect(self, num_rows: int) -> None:
        """Nothing has to be asked for."""

    def has_arrived(self) -> bool:
        return bool(self._queue)

    def wait(self) -> None:
        raise AssertionError("nothing else runs in this process: it would wait for ever")

    def send_message(self, message: Message) -> None:
        raise AssertionError(f"a link of rows, not of {message}")

    def take_message(self) -> Message:
        raise AssertionError("a link of rows")


def _pinned(shape: tuple[int, ...], dtype: torch.dtype, source: "CudaRank") -> RowViews:
    return RowViews(torch.zeros(shape, dtype=dtype, pin_memory=source.device.type == "cuda"))


def _recorded(stream: Any) -> torch.cuda.Event | None:
    """None where there are no streams: everything is done already."""
    if stream is None:
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _meet(source: "CudaRank", target: "CudaRank") -> None:
    """Let two devices see each other's memory, and see that what is written, or read, arrives.

    Raises RunFailed where it does not.
    """
    if source.device == target.device:
        return
    for reader, owner in ((source, target), (target, source)):
        if not torch.cuda.can_device_access_peer(reader.device, owner.device):
            raise RunFailed(f"{reader.device}, {owner.device}: the plan wants p2p, which this "
                            f"machine does not have between them: {_REMEDY}")  # fmt: skip
    there = torch.zeros(1, device=source.device).to(target.device)
    there.to(source.device)  # torch opens the ways as it copies
    for verb, rank in (("written", source), ("read", target)):
        if problem := payload_problem(partial(_carry, source, target, rank), _CHECKED_SIZES):
            raise RunFailed(f"{source.device} to {target.device}: p2p is said to work, but what is "
                            f"{verb} does not arrive: {problem}: {_REMEDY}")  # fmt: skip


def _carry(source: "CudaRank", target: "CudaRank", copier: "CudaRank", size: int) -> Carry:
    """Bytes from the source's memory to the target's, by a kernel of either."""
    there = torch.zeros(size, dtype=torch.uint8, device=target.device)

    def carried(payload: torch.Tensor) -> torch.Tensor:
        sent = payload.to(source.device)
        _settle(source, target)
        with copier.on_stream():
            copy_rows(sent, there)
        _settle(source, target)
        return there.cpu()

    return carried


def _settle(*ranks: "CudaRank") -> None:
    for rank in ranks:
        torch.cuda.synchronize(rank.device)
