"""What a worker's heartbeat tells: where it is, and whether it moves."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Pulse:
    """Written by the thread that works, read by the one that beats; torn reads do no harm.

    progress only grows: bytes while loading, instructions while running. is_waiting: for another
    worker, or for something to do.
    """

    phase: str = "connect"
    progress: int = 0
    is_waiting: bool = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.is_waiting = True
        yield
        self.is_waiting = False
