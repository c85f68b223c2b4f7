"""Links between ranks of one process, and what every kind of link promises.

A rank sends into an Outlet and takes from an Inlet. Rows are copied into one of the link's slots,
so a sender may overwrite its own (but for rows sent in place, see backend/api.py); the receiver's
view of a slot is good until `free`.
Steps are read as they are taken and hold no slot.
"""

from collections import deque
from typing import Protocol

import torch

from plancc.executor.row_views import RowViews
from plancc.executor.step_codec import Message


class Outlet(Protocol):
    buffer_bytes: int  # of rows; steps are not counted
    leaves_process: bool  # rows go from memory of the host

    def can_send(self) -> bool:
        """False while every slot is taken; only a link within a process says so."""

    def send_rows(self, rows: torch.Tensor) -> None:
        """Copy [rows, hidden_size] into a slot and let it go; waits for a slot if it must."""

    def send_message(self, message: Message) -> None: ...


class Inlet(Protocol):
    buffer_bytes: int

    def expect(self, num_rows: int) -> None:
        """The next rows will be so many (0: a message); called once before each take."""

    def has_arrived(self) -> bool:
        """True if `take_*` will not wait."""

    def wait(self) -> None:
        """Return when it has arrived."""

    def take_rows(self) -> torch.Tensor:
        """A view of the slot, good until `free`."""

    def take_message(self) -> Message: ...

    def free(self) -> None:
        """Give back the oldest slot taken."""


class LocalLink:
    """Both ends of a link between two ranks of this process, whose rows lie in its memory."""

    leaves_process = False

    def __init__(self, buffers: torch.Tensor | None, num_slots: int) -> None:
        """buffers: [slots, rows, hidden_size] on the receiver's device; None for messages."""
        self._views = None if buffers is None else RowViews(buffers)
        self.buffer_bytes = 0 if buffers is None else buffers.nbytes
        self._slots = num_slots
        self._sent = 0
        self._taken = 0
        self._freed = 0
        self._queue: deque[torch.Tensor | Message] = deque()

    def can_send(self) -> bool:
        return self._sent - self._freed < self._slots

    def forget(self) -> None:
        """Nothing is kept of what was received."""

    def send_rows(self, rows: torch.Tensor) -> None:
        assert self._views is not None
        assert self.can_send()
        slot = self._views.at(self._sent % self._slots, rows.shape[0])
        slot.copy_(rows)
        self._sent += 1
        self._queue.append(slot)

    def send_message(self, message: Message) -> None:
        self._sent += 1
        self._queue.append(message)

    def expect(self, num_rows: int) -> None:
        pass

    def has_arrived(self) -> bool:
        return bool(self._queue)

    def wait(self) -> None:
        raise AssertionError("nothing else runs in this process: it would wait for ever")

    def take_rows(self) -> torch.Tensor:
        rows = self._queue.popleft()
        assert isinstance(rows, torch.Tensor)
        self._taken += 1
        return rows

    def take_message(self) -> Message:
        message = self._queue.popleft()
        assert not isinstance(message, torch.Tensor)
        self._taken += 1
        self._freed += 1
        return message

    def free(self) -> None:
        assert self._freed < self._taken, "a slot is freed once, after it was taken"
        self._freed += 1
