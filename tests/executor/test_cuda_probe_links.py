"""The probe over the links that cards have, in Triton's interpreter: bytes arrive either way."""

import os
from math import isfinite

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch
from plancc_probe_seats import seats

from plancc.executor import probe_local
from plancc.executor.backend import cuda_link
from plancc.executor.backend.cuda import CudaBackend
from plancc.executor.probe_local import LocalProbe
from plancc.executor.probe_payload import KIB, payload_problem
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")


@pytest.fixture(scope="module")
def probe() -> LocalProbe:
    return seats(CudaBackend("cpu"), "gpu0", "gpu1", can_reach=lambda source, target: True)


@pytest.mark.parametrize("is_staged", [False, True])
def test_what_is_sent_arrives(probe: LocalProbe, is_staged: bool) -> None:
    problem = payload_problem(
        lambda size: probe.carry("gpu0", "gpu1", size, is_staged=is_staged), (64, KIB, 5 * KIB)
    )
    assert problem is None


def test_a_staged_link_asks_nobody_whether_cards_reach_each_other(
    probe: LocalProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a plan whose links are staged runs so where p2p would work, and where it would not."""
    met: list[object] = []
    monkeypatch.setattr(cuda_link, "_meet", lambda *ends: met.append(ends))
    for is_staged, count in ((True, 0), (False, 1)):
        carry = probe.carry("gpu0", "gpu1", 64, is_staged=is_staged)
        payload = torch.arange(64, dtype=torch.uint8)
        assert torch.equal(carry(payload), payload)
        assert len(met) == count


@pytest.mark.parametrize("is_staged", [False, True])
def test_hops_and_exchanges_take_some_time(
    probe: LocalProbe, is_staged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_local, "_MANY", 2)  # the interpreter is slow
    monkeypatch.setattr(probe_local, "_LAUNCHES", 1)
    times = probe.hop_us("gpu0", "gpu1", is_staged, [64, KIB], 0.0)
    staged = [("gpu0", "gpu1")] if is_staged else []
    times += probe.exchange_us(["gpu0", "gpu1"], staged, [64], 0.0)
    times.append(probe.at_once_us([("gpu0", "gpu1", is_staged), ("gpu1", "gpu0", False)], 64, 0.0))
    assert all(isfinite(us) and us > 0 for us in times)
