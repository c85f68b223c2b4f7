"""Launches that are kept are made again with another number where one varies, and only there."""

from typing import Any

import pytest

from plancc.kernels.gpu.tape import Tape, Tapes, Varying


def made(calls: list[tuple[Any, ...]], *args: Any) -> None:
    """As kernels.gpu.launch does it: launch, and keep it where a tape runs."""
    calls.append(tuple(int(a) if isinstance(a, Varying) else a for a in args))
    if Tape.running is not None:
        Tape.running.keep(lambda *again: calls.append(again), list(args))


def test_a_tape_repeats_every_launch_with_the_new_number() -> None:
    calls: list[tuple[Any, ...]] = []

    def launch(first: int) -> None:
        made(calls, "enter", first, 7)
        made(calls, "norm", 7)
        made(calls, "attend", 7, first)

    tapes = Tapes()
    for first in (7, 512, 0):
        tapes.run("key", first, launch)
    expected = [(("enter", first, 7), ("norm", 7), ("attend", 7, first)) for first in (7, 512, 0)]
    assert calls == [call for chunk in expected for call in chunk]
    assert not any(isinstance(arg, Varying) for call in calls for arg in call)


def test_another_key_is_another_tape() -> None:
    calls: list[tuple[Any, ...]] = []
    tapes = Tapes()
    for key in ("a", "b", "a"):
        tapes.run(key, 5, lambda first, key=key: made(calls, key, first))  # type: ignore[misc]
    assert calls == [("a", 5), ("b", 5), ("a", 5)]


def test_a_launch_that_fails_leaves_no_tape_running() -> None:
    def fails(first: int) -> None:
        raise RuntimeError("no room")

    calls: list[tuple[Any, ...]] = []
    tapes = Tapes()
    with pytest.raises(RuntimeError, match="no room"):
        tapes.run("key", 5, fails)
    assert Tape.running is None
    tapes.run("key", 6, lambda first: made(calls, first))
    assert calls == [(6,)]
