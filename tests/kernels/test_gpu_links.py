"""T03, E04: what a run asks of a link before it trusts it, with faults in what copies."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before the kernels are made

import pytest
import torch

from plancc.executor.backend import cuda_link
from plancc.executor.backend.cuda_link import CudaLink
from plancc.ir.errors import RunFailed
from plancc.kernels.gpu.launch import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels were made for a card before")
KIB, MIB = 2**10, 2**20
PAGE = 4 * KIB
Copy = Callable[[torch.Tensor, torch.Tensor], None]


@dataclass(frozen=True)
class Seat:
    """As much of a rank as a link asks for. The host's memory passes for that of two cards: torch
    tells cpu from cpu:0."""

    device: torch.device
    stream: None = None

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        yield


ENDS = Seat(torch.device("cpu")), Seat(torch.device("cpu", 0))


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is said to reach the other."""
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda reader, owner: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)


def link(*, is_staged: bool, shape: tuple[int, ...] = (2, 6, 512)) -> CudaLink:
    return CudaLink(*ENDS, shape=shape, dtype=torch.bfloat16,  # type: ignore[arg-type]
                    is_staged=is_staged, in_place=False)  # fmt: skip


def copies(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)


def drops(source: torch.Tensor, target: torch.Tensor) -> None:
    pass


def drops_every_second_page(source: torch.Tensor, target: torch.Tensor) -> None:
    for begin in range(0, len(source), 2 * PAGE):
        target[begin : begin + PAGE] = source[begin : begin + PAGE]


def drops_from_1_mib_on(source: torch.Tensor, target: torch.Tensor) -> None:
    if source.nbytes < MIB:
        target.copy_(source)


def drops_less_than_a_page(source: torch.Tensor, target: torch.Tensor) -> None:
    if source.nbytes >= PAGE:
        target.copy_(source)


def writes_once() -> Copy:
    """What comes first to a place arrives, and lies there ever after."""
    seen: set[int] = set()

    def write(source: torch.Tensor, target: torch.Tensor) -> None:
        if target.data_ptr() not in seen:
            target.copy_(source)
        seen.add(target.data_ptr())

    return write


FAULTS = {
    "all": (drops, "of 1.0 KiB sent, 10[0-9]{2} byte"),
    "every second page": (drops_every_second_page, "of 64.0 KiB sent, .* 8 of 16 pages"),
    "from 1 MiB on": (drops_from_1_mib_on, "of 1.0 MiB sent"),
    "less than a page": (drops_less_than_a_page, "of 1.0 KiB sent"),
    "all but the first": (writes_once(), "of 1.0 KiB sent"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_t03_a_run_refuses_p2p_that_drops_what_is_written(
    fault: str, two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, words = FAULTS[fault]
    monkeypatch.setattr(cuda_link, "copy_rows", copy)
    with pytest.raises(RunFailed, match=f"cpu to cpu:0: p2p .* written does not arrive: {words}.*"
                                        "planprobe --refresh"):  # fmt: skip
        link(is_staged=False)


def test_t03_a_way_that_works_when_written_and_not_when_read_is_refused(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial rows of a group are read where they lie, by the target's kernels."""
    whose: list[Seat] = []

    @contextmanager
    def noted(seat: Seat) -> Iterator[None]:
        whose.append(seat)
        yield

    def copy(source: torch.Tensor, target: torch.Tensor) -> None:
        if whose[-1] is ENDS[0]:
            target.copy_(source)

    monkeypatch.setattr(Seat, "on_stream", noted)
    monkeypatch.setattr(cuda_link, "copy_rows", copy)
    with pytest.raises(RunFailed, match=r"what is read does not arrive: of 1\.0 KiB sent"):
        link(is_staged=False)


def test_t03_cards_that_reach_each_other_one_way_only_are_refused(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "can_device_access_peer",
                        lambda reader, owner: reader is ENDS[0].device)  # fmt: skip
    with pytest.raises(RunFailed, match="the plan wants p2p, which this machine does not have"):
        link(is_staged=False)


def test_t03_a_way_that_works_is_taken(two_cards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_link, "copy_rows", copies)
    made = link(is_staged=False)
    rows = torch.randn(3, 512).bfloat16()
    made.send_rows(rows)
    assert torch.equal(made.take_rows(), rows)


@pytest.mark.parametrize("num_rows", [1, 6])
def test_t03_staged_links_are_asked_too_with_few_rows_and_many(
    num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of one row, or of as many as a slot has, leave what was there."""
    real = torch.Tensor.copy_

    def copy(target: torch.Tensor, source: torch.Tensor, *args: Any, **how: Any) -> torch.Tensor:
        is_lost = how.get("non_blocking") and len(target) == num_rows
        return target if is_lost else real(target, source, *args, **how)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    with pytest.raises(RunFailed, match=f"cpu to cpu:0: through memory of the host, of {num_rows}"
                                        r"\.0 KiB sent.*planprobe --refresh"):  # fmt: skip
        link(is_staged=True)


@pytest.mark.parametrize("shape", [(2, 1, 8), (2, 5, 3, 7), (2, 40, 65536)])
def test_a_staged_link_that_works_begins_at_its_first_slot(shape: tuple[int, ...]) -> None:
    made = link(is_staged=True, shape=shape)
    assert made._sent % 2 == made._taken % 2 == made._freed % 2 == 0
    assert not made.has_arrived()
    assert made.can_send()
