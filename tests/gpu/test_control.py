"""Kernels read what the host wrote last, and write to it what it reads."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from plancc.kernels.gpu.control import take_control
from plancc.kernels.gpu.sample import PIECES, pick

pytestmark = pytest.mark.gpu


def test_numbers_that_the_host_changes_are_read_anew() -> None:
    host = torch.zeros(8, dtype=torch.int32, pin_memory=True)
    control = torch.zeros(16, dtype=torch.int32, device="cuda")
    for turn in range(200):
        host.fill_(turn)
        take_control(host, None, control, first=8)
        assert control[:8].tolist() == [turn] * 8  # waits, so the host may write again


def test_tokens_come_to_the_host_and_back_as_they_were_picked() -> None:
    rows, n = 3, 128256
    told = torch.zeros(rows, dtype=torch.int32, pin_memory=True)
    host = torch.zeros(4, dtype=torch.int32, pin_memory=True)
    control = torch.zeros(16, dtype=torch.int32, device="cuda")
    bests = torch.zeros(rows, PIECES, device="cuda")
    places = torch.zeros(rows, PIECES, dtype=torch.int32, device="cuda")
    counters, tokens = (torch.zeros(rows, dtype=torch.int32, device="cuda") for _ in range(2))
    for seed in range(20):
        torch.manual_seed(seed)
        logits = torch.randn(rows, n, device="cuda")
        pick(logits, bests, places, counters, tokens, None, told=told)
        take_control(host, told, control, first=8)
        torch.cuda.synchronize()
        assert told.tolist() == logits.argmax(1).tolist()
        assert control[8 : 8 + rows].tolist() == tokens.tolist() == told.tolist()
