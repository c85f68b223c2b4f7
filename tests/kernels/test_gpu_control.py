"""What a step tells the device arrives: the host's numbers, then tokens that were drawn."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plancc.kernels.gpu.control import take_control
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
OLD, FIRST = -7, 128


@given(size=st.integers(1, FIRST), count=st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_drawn_tokens_follow_the_numbers_of_the_host(size: int, count: int) -> None:
    host, tokens = torch.arange(1, size + 1).int(), torch.arange(1000, 1000 + count).int()
    control = torch.full((FIRST + 64,), OLD, dtype=torch.int32)
    take_control(host, tokens, control, first=FIRST)
    wanted = torch.full_like(control, OLD)
    wanted[:size], wanted[FIRST : FIRST + count] = host, tokens
    assert torch.equal(control, wanted)


@given(size=st.integers(1, 700))
@settings(max_examples=20, deadline=None)
def test_without_drawn_tokens_the_host_tells_all(size: int) -> None:
    host = torch.arange(1, size + 1).int()
    control = torch.full((700,), OLD, dtype=torch.int32)
    take_control(host, None, control, first=FIRST)
    assert torch.equal(control[:size], host)
    assert bool((control[size:] == OLD).all())


def test_numbers_of_the_host_do_not_reach_into_the_tokens() -> None:
    host, tokens = torch.zeros(9).int(), torch.zeros(1).int()
    with pytest.raises(AssertionError, match="9 numbers before place 8"):
        take_control(host, tokens, torch.zeros(16).int(), first=8)
