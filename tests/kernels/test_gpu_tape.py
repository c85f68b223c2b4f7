"""Launches that are kept are made again with other numbers where some vary, and only there."""

import os
from functools import partial
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
import triton.language as tl
from triton.language import tensor

from plancc.kernels.gpu.jit import entry
from plancc.kernels.gpu.launch import IS_INTERPRETED, launch
from plancc.kernels.gpu.tape import Tape, Tapes, Varying

Calls = list[tuple[Any, ...]]


@entry(["count"])
def _add(out: tensor, count: tensor, step: tensor, BY: tl.constexpr, OVERLAP: tl.constexpr) -> None:
    tl.store(out, tl.load(out) + count * BY + step)


def made(calls: Calls, *args: Any) -> None:
    """As kernels.gpu.launch does it: launch, and keep it where a tape runs."""
    calls.append(tuple(int(a) if isinstance(a, Varying) else a for a in args))
    if Tape.running is not None:
        Tape.running.keep(lambda *again: calls.append(again), list(args))


def test_a_tape_repeats_every_launch_with_the_new_numbers() -> None:
    calls: Calls = []

    def launched(first: int, rows: int) -> None:
        made(calls, "enter", first, 7)
        made(calls, "norm", 7)
        made(calls, "attend", rows, first, rows)

    tapes, asked = Tapes(), [(7, 7), (512, 3), (0, 512)]
    for values in asked:
        tapes.run("key", values, launched)
    expected = [(("enter", first, 7), ("norm", 7), ("attend", rows, first, rows))
                for first, rows in asked]  # fmt: skip
    assert calls == [call for chunk in expected for call in chunk]
    assert not any(isinstance(arg, Varying) for call in calls for arg in call)


def test_another_key_is_another_tape() -> None:
    calls: Calls = []
    tapes = Tapes()
    for key in ("a", "b", "a"):
        tapes.run(key, (5,), partial(made, calls, key))
    assert calls == [("a", 5), ("b", 5), ("a", 5)]


def test_tapes_that_were_not_used_for_longest_make_room() -> None:
    calls: Calls = []
    recorded: list[str] = []
    tapes = Tapes(most_launches=5)

    def launched(key: str) -> None:
        recorded.append(key)
        made(calls, key, "first")
        made(calls, key, "second")

    for key in ("a", "b", "a", "c", "a", "b"):
        tapes.run(key, (), partial(launched, key))
    assert recorded == ["a", "b", "c", "b"], "a was used after b, and stays"
    assert len(calls) == 12


def test_a_tape_that_is_too_long_by_itself_is_kept() -> None:
    calls: Calls = []
    tapes = Tapes(most_launches=0)
    for _ in range(2):
        tapes.run("key", (), lambda: made(calls, len(calls)))
    assert calls == [(0,), (0,)]


def test_a_launch_that_fails_leaves_no_tape_running() -> None:
    def fails(first: int) -> None:
        raise RuntimeError("no room")

    calls: Calls = []
    tapes = Tapes()
    with pytest.raises(RuntimeError, match="no room"):
        tapes.run("key", (5,), fails)
    assert Tape.running is None
    tapes.run("key", (6,), lambda first: made(calls, first))
    assert calls == [(6,)]


@pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
def test_a_kernel_is_launched_again_with_the_new_number() -> None:
    out, tapes = torch.zeros(1, dtype=torch.int32), Tapes()
    for count in (1, 5):
        tapes.run("key", (count,), lambda count: launch(_add, (1,), out, count, 7, BY=10, warps=1))
    assert int(out) == 10 + 7 + 50 + 7


@pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
def test_a_number_that_a_kernel_is_compiled_for_may_not_vary() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(AssertionError, match="step is specialized"):
        Tapes().run("key", (1,), lambda step: launch(_add, (1,), out, 2, step, BY=10, warps=1))
