"""What two or more processes measure together: hops and exchanges over the links of a run."""

import time

import torch

from plancc.executor.comm import GlooInlet, GlooOutlet, Group
from plancc.ir.sizes import LINK_SLOTS

_ACK, _TAG = 10_000, 20_000  # no hop's link has such a number
_GAP_S = 0.002  # a receiver has waited for a whole stage before its rows arrive: never a hot loop
_WARM_UP = 2


class LinkProbe:
    """This process as one rank of a group."""

    def __init__(self, group: Group, rank: int, world_size: int) -> None:
        self._group, self._rank, self._size = group, rank, world_size

    def hop_clocks(self, source: int, target: int, size: int, times: int) -> list[int]:
        """Clock in ns: before each send of `size` bytes at the source, after each take elsewhere.

        Both processes of one host read the same monotonic clock: the difference is one way.
        """
        peer = target if self._rank == source else source
        buffers = torch.zeros((LINK_SLOTS, 1, size), dtype=torch.uint8)
        acks = torch.zeros((LINK_SLOTS, 1, 64), dtype=torch.uint8)
        ends = (self._group, peer)
        if self._rank == source:
            outlet = GlooOutlet(*ends, 0, LINK_SLOTS, buffers, 0)
            return _send(outlet, GlooInlet(*ends, _ACK, LINK_SLOTS, acks, 0), size, times)
        inlet = GlooInlet(*ends, 0, LINK_SLOTS, buffers, 0)
        return _receive(inlet, GlooOutlet(*ends, _ACK, LINK_SLOTS, acks, 0), times)

    def exchange_us(self, size: int, times: int) -> list[float]:
        """us of each round in which every rank ends with the `size` bytes of every other."""
        mine = torch.zeros(size, dtype=torch.uint8)
        theirs = {peer: torch.zeros_like(mine) for peer in range(self._size) if peer != self._rank}
        return [self._round_us(mine, theirs) for _ in range(_WARM_UP + times)][_WARM_UP:]

    def _round_us(self, mine: torch.Tensor, theirs: dict[int, torch.Tensor]) -> float:
        begin = time.monotonic_ns()
        works = [self._group.recv(buffer, peer, _TAG) for peer, buffer in theirs.items()]
        works += [self._group.send(mine, peer, _TAG) for peer in theirs]
        for work in works:
            work.wait()
        return (time.monotonic_ns() - begin) / 1e3


def _send(outlet: GlooOutlet, acks: GlooInlet, size: int, times: int) -> list[int]:
    payload = torch.zeros((1, size), dtype=torch.uint8)
    clocks = []
    for _ in range(_WARM_UP + times):
        acks.expect(1)
        _compute_for(_GAP_S)
        clocks.append(time.monotonic_ns())
        outlet.send_rows(payload)
        acks.wait()
        acks.take_rows()
        acks.free()
    return clocks[_WARM_UP:]


def _receive(inlet: GlooInlet, acks: GlooOutlet, times: int) -> list[int]:
    ack = torch.zeros((1, 64), dtype=torch.uint8)
    clocks = []
    for _ in range(_WARM_UP + times):
        inlet.expect(1)
        inlet.wait()
        inlet.take_rows()
        clocks.append(time.monotonic_ns())
        inlet.free()
        acks.send_rows(ack)
    return clocks[_WARM_UP:]


def _compute_for(seconds: float) -> None:
    """Busy, as a stage is before it sends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
