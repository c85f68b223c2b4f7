"""Peer access that is reported and not true is found by bytes, whatever the fault."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plancc_fake_device import FakeDevice, FakeLink, tiny_rank

from plancc.executor.probe_local import LocalProbe
from plancc.executor.probe_payload import KIB, MIB, SIZES, Carry, payload_problem
from plancc.ir.errors import RunFailed

PAGE = 4 * KIB


def into(memory: torch.Tensor, write: Callable[[torch.Tensor, torch.Tensor], None]) -> Carry:
    """Bytes that are written into memory which keeps what it had."""

    def carry(sent: torch.Tensor) -> torch.Tensor:
        write(memory, sent)
        return memory.clone()

    return carry


def drops(memory: torch.Tensor, sent: torch.Tensor) -> None:
    pass


def drops_every_second_page(memory: torch.Tensor, sent: torch.Tensor) -> None:
    for begin in range(0, len(sent), 2 * PAGE):
        memory[begin : begin + PAGE] = sent[begin : begin + PAGE]


def drops_from_1_mib_on(memory: torch.Tensor, sent: torch.Tensor) -> None:
    if len(sent) < MIB:
        memory.copy_(sent)


def writes_once() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """What comes first arrives, and lies there ever after."""
    seen: set[int] = set()

    def write(memory: torch.Tensor, sent: torch.Tensor) -> None:
        if len(sent) not in seen:
            memory.copy_(sent)
        seen.add(len(sent))

    return write


def flips_the_last_bit(memory: torch.Tensor, sent: torch.Tensor) -> None:
    memory.copy_(sent)
    memory[-1] ^= 1


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (drops, "of 1.0 KiB sent, 10"),
        (drops_every_second_page, "of 64.0 KiB sent, "),
        (drops_from_1_mib_on, "of 1.0 MiB sent, "),
        (writes_once(), "of 1.0 KiB sent, 1024 byte(s) in 1 of 1 pages"),
        (flips_the_last_bit, "1 byte(s) in 1 of 1 pages did not arrive, the first at 1023"),
    ],
)
def test_every_fault_is_found_at_the_first_size_that_shows_it(
    write: Callable[[torch.Tensor, torch.Tensor], None], words: str
) -> None:
    sizes = SIZES[:-1]
    problem = payload_problem(lambda size: into(torch.zeros(size, dtype=torch.uint8), write), sizes)
    assert problem is not None
    assert words in problem


def test_pages_that_did_not_arrive_are_counted() -> None:
    memory = torch.zeros(64 * KIB, dtype=torch.uint8)
    problem = payload_problem(lambda size: into(memory, drops_every_second_page), (64 * KIB,))
    assert problem is not None
    assert " in 8 of 16 pages did not arrive, the first at 4096" in problem


def test_bytes_that_all_arrive_are_no_problem() -> None:
    assert payload_problem(lambda size: lambda sent: sent.clone(), SIZES[:-1]) is None


def fault_of_page(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.clone()
    rows.view(torch.uint8)[:, 100:200] = 0
    return rows


def test_a_link_whose_rows_do_not_arrive_is_staged_and_says_why() -> None:
    device = FakeDevice(fault=fault_of_page)
    mode, problem = two(device).mode("a", "b")
    assert mode == "staged"
    assert problem is not None
    assert problem.startswith("of 1.0 KiB sent, ")


def test_a_link_whose_rows_arrive_at_every_size_is_p2p() -> None:
    assert (SIZES[0], SIZES[-1]) == (KIB, 64 * MIB)
    assert two(FakeDevice()).mode("a", "b") == ("p2p", None)


def test_where_no_peer_access_is_reported_none_is_tried() -> None:
    assert two(FakeDevice(), can_reach=False).mode("a", "b") == ("staged", None)


def test_a_link_that_refuses_to_be_made_is_staged() -> None:
    class Refusing(FakeDevice):
        def link(self, *ends: object, **how: object) -> object:  # type: ignore[override]
            raise RunFailed("what is written does not arrive")

    assert two(Refusing()).mode("a", "b") == ("staged", "what is written does not arrive")


def test_bytes_through_the_host_are_checked_too() -> None:
    class Losing(FakeLink):
        def take_rows(self) -> torch.Tensor:
            return fault_of_page(super().take_rows())

    class LosingDevice(FakeDevice):
        def link(self, *ends: object, shape: Any, dtype: Any, is_staged: bool, **how: Any) -> Any:
            made = Losing if is_staged else FakeLink
            return made(self, torch.zeros(shape, dtype=dtype), is_staged=is_staged)

    assert two(FakeDevice()).answer("staged", source="a", target="b") is None
    losing = two(LosingDevice())
    assert losing.mode("a", "b") == ("p2p", None)
    assert str(losing.staged_problem("a", "b")).startswith("of 1.0 KiB sent, ")


def two(device: FakeDevice, *, can_reach: bool = True) -> LocalProbe:
    ranks = {name: tiny_rank(device) for name in ("a", "b")}
    return LocalProbe(device, ranks, lambda source, target: can_reach)
