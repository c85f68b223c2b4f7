"""Launches that are made again: a prompt's chunks differ in where they begin, and in nothing else.

What leads to a launch (views, tilings, constants, which of the compiled kernels) takes the host
longer than a fast card needs for the kernel.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

Launch = Callable[..., Any]


class Varying(int):
    """An argument that is another number when the launch is made again."""


class Tape:
    """Launches in their order, each with its arguments."""

    running: ClassVar["Tape | None"] = None

    def __init__(self) -> None:
        self._launches: list[tuple[Launch, list[Any], tuple[int, ...]]] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        """Keep what is launched within, as well as launching it."""
        Tape.running = self
        try:
            yield
        finally:
            Tape.running = None

    def keep(self, launch: Launch, args: list[Any]) -> None:
        varying = tuple(at for at, arg in enumerate(args) if isinstance(arg, Varying))
        self._launches.append((launch, args, varying))

    def play(self, value: int) -> None:
        """Everything again, with `value` where an argument varies."""
        for launch, args, varying in self._launches:
            for at in varying:
                args[at] = value
            launch(*args)


class Tapes:
    """By what the launches depend on."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Tape] = {}

    def run(self, key: Hashable, value: int, launch: Callable[[int], None]) -> None:
        """What `launch` does with the value, which it hands on as it is; recorded at first."""
        tape = self._by_key.get(key)
        if tape is not None:
            tape.play(value)
            return
        tape = Tape()
        with tape.record():
            launch(Varying(value))
        self._by_key[key] = tape
