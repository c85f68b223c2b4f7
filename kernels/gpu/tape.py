"""Launches that are made again: a prompt's chunks differ in a few numbers, and in nothing else.

What leads to a launch (views, tilings, constants, which of the compiled kernels) takes the host
longer than a fast card needs for the kernel.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

Launch = Callable[..., Any]
_MOST_LAUNCHES = 2**16  # of all tapes of a rank: some 100 MiB of the host's memory


class Varying(int):
    """An argument that is another number when the launch is made again: the one at `place` of those
    that a tape is played with. What is calculated from it is a number as any other."""

    place: int

    def __new__(cls, value: int, place: int) -> "Varying":
        made = super().__new__(cls, value)
        made.place = place
        return made


class Tape:
    """Launches in their order, each with its arguments."""

    running: ClassVar["Tape | None"] = None

    def __init__(self) -> None:
        self._launches: list[tuple[Launch, list[Any], tuple[tuple[int, int], ...]]] = []
        self._owners: list[Any] = []

    def __len__(self) -> int:
        return len(self._launches)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Keep what is launched within, as well as launching it."""
        Tape.running = self
        try:
            yield
        finally:
            Tape.running = None

    def keep(self, launch: Launch, args: list[Any], owners: Any = None) -> None:
        """owners: of the memory whose addresses are among the arguments."""
        varying = tuple((at, arg.place) for at, arg in enumerate(args) if isinstance(arg, Varying))
        self._launches.append((launch, args, varying))
        self._owners.append(owners)

    def play(self, values: Sequence[int]) -> None:
        """Everything again, with these numbers where arguments vary."""
        for launch, args, varying in self._launches:
            for at, place in varying:
                args[at] = values[place]
            launch(*args)


class Tapes:
    """By what the launches depend on; those that were not used for longest make room."""

    def __init__(self, most_launches: int = _MOST_LAUNCHES) -> None:
        self._by_key: dict[Hashable, Tape] = {}
        self._most, self._num_launches = most_launches, 0

    def run(self, key: Hashable, values: Sequence[int], launch: Callable[..., None]) -> None:
        """What `launch` does with the values, which it hands on as they are; recorded at first."""
        tape = self._by_key.pop(key, None)
        if tape is not None:
            self._by_key[key] = tape  # the last one now
            tape.play(values)
            return
        tape = Tape()
        with tape.record():
            launch(*(Varying(value, place) for place, value in enumerate(values)))
        self._by_key[key] = tape
        self._num_launches += len(tape)
        while self._num_launches > self._most and len(self._by_key) > 1:
            self._num_launches -= len(self._by_key.pop(next(iter(self._by_key))))
