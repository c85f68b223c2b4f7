"""Links between processes: gloo sends and receives out of buffers that exist before the first step.

A decode hop is one message and a decode step's news another: nothing is pickled and nothing is
allocated in a step. Gloo moves bytes only once the receiver has asked for them, so receivers ask
early (`expect`) and a sender waits for nothing but its own slot.
"""

import queue
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plancc.executor.failures import LinkBroken
from plancc.executor.links import Inlet
from plancc.executor.row_views import RowViews
from plancc.executor.step_codec import HEADER_WORDS, Message, body_words, decode, encode
from plancc.ir.errors import RunFailed

_GLOO: Any = dist.ProcessGroupGloo  # torch's stubs say little of either
_STORE: Any = vars(dist)["TCPStore"]
_NEVER = timedelta(days=30)  # liveness is watched over the control connections, not by gloo


class Group:
    """This process among all the workers of a run, by the order of the plan."""

    def __init__(self, store: Any, index: int, size: int, address: str) -> None:
        """Meet the others at the store; `address` is this host's, to bind and to be reached at."""
        options = _GLOO._Options()
        options._devices = [_GLOO.create_device(hostname=address)]
        options._timeout = _NEVER
        self.store, self._gloo = store, _GLOO(store, index, size, options)

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        return self._gloo.send([tensor], peer, tag)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        return self._gloo.recv([tensor], peer, tag)


def open_store(address: str, port: int = 0) -> Any:
    """The store where workers meet: a new one (port 0; see its `.port`), or another worker's."""
    is_master = port == 0
    return _STORE(address, port, is_master=is_master, wait_for_workers=False, timeout=_NEVER)


class RowSlots:
    """Slots that rows leave from: to one peer, or the same rows to several, one after the other."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._views = RowViews(rows)
        self._pending: list[list[tuple[Any, int]]] = [[] for _ in rows]
        self._slot = -1
        self._links: set[int] = set()  # that the present slot has left by
        self._unpaid_bytes = rows.nbytes

    def send(self, rows: torch.Tensor, group: Group, peer: int, link: int) -> None:
        if self._slot < 0 or link in self._links:
            self._slot = (self._slot + 1) % len(self._views)
            for work, old in self._pending[self._slot]:
                finish(work, old)
            self._pending[self._slot], self._links = [], set()
            self._views.at(self._slot, rows.shape[0]).copy_(rows)
        self._links.add(link)
        work = group.send(self._views.at(self._slot, rows.shape[0]), peer, 2 * link)
        self._pending[self._slot].append((work, link))

    def take_bytes(self) -> int:
        """The buffer's bytes, once: the links that share it count it among them."""
        size, self._unpaid_bytes = self._unpaid_bytes, 0
        return size


class GlooOutlet:
    """The sending end. `rows`: [slots, rows, hidden_size], or None where steps are sent."""

    leaves_process = True

    def __init__(
        self,
        group: Group,
        peer: int,
        link: int,
        num_slots: int,
        rows: torch.Tensor | RowSlots | None,
        body: int,
    ) -> None:
        self._group, self._peer, self._link = group, peer, link
        self._slots = RowSlots(rows) if isinstance(rows, torch.Tensor) else rows
        self.buffer_bytes = self._slots.take_bytes() if self._slots else 0
        self._headers = torch.zeros((num_slots, HEADER_WORDS), dtype=torch.int64)
        self._bodies = torch.zeros((num_slots, body), dtype=torch.int64)
        self._header_words, self._body_words = self._headers.numpy(), self._bodies.numpy()
        self._pending: list[list[Any]] = [[] for _ in range(num_slots)]
        self._next = 0

    def can_send(self) -> bool:
        return True

    def send_rows(self, rows: torch.Tensor) -> None:
        assert self._slots is not None
        self._slots.send(rows, self._group, self._peer, self._link)

    def send_message(self, message: Message) -> None:
        slot = self._claim()
        header, body = encode(message)
        self._header_words[slot] = header
        works = [self._group.send(self._headers[slot], self._peer, 2 * self._link)]
        if body:
            self._body_words[slot, : len(body)] = body
            tensor = self._bodies[slot, : len(body)]
            works.append(self._group.send(tensor, self._peer, 2 * self._link + 1))
        self._pending[slot] = works

    def _claim(self) -> int:
        """A slot whose last message has left."""
        slot, self._next = self._next, (self._next + 1) % len(self._pending)
        for work in self._pending[slot]:
            finish(work, self._link)
        return slot


class GlooInlet:
    """The receiving end. `rows`: [slots, rows, hidden_size], or None where steps are received."""

    def __init__(
        self,
        group: Group,
        peer: int,
        link: int,
        num_slots: int,
        rows: torch.Tensor | None,
        body: int,
    ) -> None:
        self._group, self._peer, self._link = group, peer, link
        self._views, self._slots = None if rows is None else RowViews(rows), num_slots
        self.buffer_bytes = 0 if rows is None else rows.nbytes
        self._header = torch.zeros(HEADER_WORDS, dtype=torch.int64)
        self._body = torch.zeros(body, dtype=torch.int64)
        self._work: Any = None
        self._buffer = self._header
        self._is_here, self._taken, self._freed = False, 0, 0

    def expect(self, num_rows: int) -> None:
        if self._work is not None:
            return
        if num_rows:
            assert self._views is not None
            assert self._taken - self._freed < self._slots, "every slot is held"
            self._buffer = self._views.at(self._taken % self._slots, num_rows)
        self._work = self._group.recv(self._buffer, self._peer, 2 * self._link)

    def has_arrived(self) -> bool:
        return self._is_here

    def wait(self) -> None:
        finish(self._work, self._link)
        self._is_here = True

    def take_rows(self) -> torch.Tensor:
        self._done()
        self._taken += 1
        return self._buffer

    def take_message(self) -> Message:
        self._done()
        header = self._header.tolist()
        if not (words := body_words(header)):
            return decode(header, ())
        body = self._body[:words]
        finish(self._group.recv(body, self._peer, 2 * self._link + 1), self._link)
        return decode(header, body.tolist())

    def free(self) -> None:
        assert self._freed < self._taken, "a slot is freed once, after it was taken"
        self._freed += 1

    def _done(self) -> None:
        assert self._is_here, "take after wait"
        self._work, self._is_here = None, False


class WatchedInlet:
    """An inlet with a thread that waits for it, for a process that serves several ranks.

    Gloo cannot be asked whether something has come. `news` is set whenever something has.
    """

    def __init__(self, inlet: GlooInlet, news: threading.Event) -> None:
        self._inlet, self._news = inlet, news
        self.buffer_bytes = inlet.buffer_bytes
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_asked, self._here = False, threading.Event()
        self._error: RunFailed | None = None
        threading.Thread(target=self._watch, daemon=True, name="inlet").start()

    def expect(self, num_rows: int) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._inlet.expect(num_rows)
            self._asked.put(None)

    def has_arrived(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._here.is_set()

    def wait(self) -> None:
        self._here.wait()
        self.has_arrived()

    def take_rows(self) -> torch.Tensor:
        self._taken()
        return self._inlet.take_rows()

    def take_message(self) -> Message:
        self._taken()
        return self._inlet.take_message()

    def free(self) -> None:
        self._inlet.free()

    def _taken(self) -> None:
        self._here.clear()
        self._is_asked = False

    def _watch(self) -> None:
        while True:
            self._asked.get()
            try:
                self._inlet.wait()
            except RunFailed as error:
                self._error = error
            self._here.set()
            self._news.set()


def is_watched(inlet: Inlet) -> bool:
    return isinstance(inlet, WatchedInlet)


def finish(work: Any, link: int) -> None:
    """Wait for a send or a receipt. Raises LinkBroken when the peer is gone."""
    try:
        work.wait()
    except RuntimeError as error:
        raise LinkBroken(f"links[{link}]: {str(error).splitlines()[0][:200]}") from None
