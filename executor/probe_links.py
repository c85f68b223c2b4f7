"""What two or more processes measure together: hops and exchanges over the links of a run."""

import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle

import torch

from plancc.executor.comm import GlooInlet, GlooOutlet, Group
from plancc.ir.sizes import LINK_SLOTS

_ACK, _TAG = 10_000, 20_000  # no hop's link has such a number
_GAP_S = 0.002  # a receiver has waited for a whole stage before its rows arrive: never a hot loop
_WARM_UP = 2
_BLOCK = 2**16
_LAYER_BLOCKS = 56  # 14 MiB
_ALONE_ROUNDS = 50


class LinkProbe:
    """This process as one rank of a group."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group, self._rank = group, rank

    def hop_clocks(
        self, source: int, target: int, sizes: Sequence[int], times: int, where: torch.device
    ) -> list[list[int]]:
        """By size, clock in ns: before each send at the source, after each take elsewhere.

        Rows begin and end `where` the device here has them. Both processes of one host read the
        same monotonic clock: the difference is one way.
        """
        return [self._hop_clocks(source, target, size, times, where) for size in sizes]

    def _hop_clocks(
        self, source: int, target: int, size: int, times: int, where: torch.device
    ) -> list[int]:
        peer = target if self._rank == source else source
        buffers = torch.zeros((LINK_SLOTS, 1, size), dtype=torch.uint8)
        acks = torch.zeros((LINK_SLOTS, 1, 64), dtype=torch.uint8)
        rows = torch.zeros((1, size), dtype=torch.uint8, device=where)
        ends = (self._group, peer)
        if self._rank == source:
            outlet = GlooOutlet(*ends, 0, LINK_SLOTS, buffers, 0)
            return _send(outlet, GlooInlet(*ends, _ACK, LINK_SLOTS, acks, 0), times, rows)
        inlet = GlooInlet(*ends, 0, LINK_SLOTS, buffers, 0)
        return _receive(inlet, GlooOutlet(*ends, _ACK, LINK_SLOTS, acks, 0), times, rows)

    def exchange_us(self, size: int, times: int, peers: Sequence[int]) -> list[float]:
        """us that each round with an exchange takes beyond the same computing of this rank alone.

        Each of `peers` ends a round with the `size` bytes of every other. Rounds follow each other
        without a pause: what an exchange costs is also what gloo's thread takes from computing.
        """
        mine = torch.zeros(size, dtype=torch.uint8)
        theirs = {peer: torch.zeros_like(mine) for peer in peers if peer != self._rank}
        alone_us = self._alone_us(theirs, peers)
        rounds = [self._round_us(mine, theirs) for _ in range(_WARM_UP + times)][_WARM_UP:]
        return [us - alone_us for us in rounds]

    def _alone_us(self, theirs: dict[int, torch.Tensor], peers: Sequence[int]) -> float:
        """Of one round's computing while the others wait for their turn."""
        found = 0.0
        for peer in peers:
            if peer == self._rank:
                found = _layer_us(_ALONE_ROUNDS)
            self._round(torch.zeros(64, dtype=torch.uint8),
                        {one: buffer[:64] for one, buffer in theirs.items()}, layers=0)  # fmt: skip
        return found

    def _round_us(self, mine: torch.Tensor, theirs: dict[int, torch.Tensor]) -> float:
        begin = time.monotonic_ns()
        self._round(mine, theirs, layers=1)
        return (time.monotonic_ns() - begin) / 1e3

    def _round(self, mine: torch.Tensor, theirs: dict[int, torch.Tensor], *, layers: int) -> None:
        """As in a run: theirs are asked for, each rank computes, and then sends its own."""
        works = [self._group.recv(buffer, peer, _TAG) for peer, buffer in theirs.items()]
        for _ in range(layers):
            _compute_layer()
        works += [self._group.send(mine, peer, _TAG) for peer in theirs]
        for work in works:
            work.wait()


def _layer_us(count: int) -> float:
    """The mean of so many, one after the other."""
    begin = time.monotonic_ns()
    for _ in range(count):
        _compute_layer()
    return (time.monotonic_ns() - begin) / 1e3 / count


def _compute_layer() -> None:
    """As much as a layer of a small model: work, not time, so that what disturbs it is seen."""
    weights, places = _weights(), _places()
    for _ in range(_LAYER_BLOCKS):
        at = next(places)
        weights[at : at + _BLOCK].sum()


@cache
def _places() -> Iterator[int]:
    return cycle(range(0, len(_weights()), _BLOCK))


def _send(outlet: GlooOutlet, acks: GlooInlet, times: int, payload: torch.Tensor) -> list[int]:
    clocks = []
    for _ in range(_WARM_UP + times):
        acks.expect(1)
        _compute_for(_GAP_S)
        clocks.append(time.monotonic_ns())
        outlet.send_rows(payload.cpu())
        acks.wait()
        acks.take_rows()
        acks.free()
    return clocks[_WARM_UP:]


def _receive(inlet: GlooInlet, acks: GlooOutlet, times: int, landing: torch.Tensor) -> list[int]:
    ack = torch.zeros((1, 64), dtype=torch.uint8)
    clocks = []
    for _ in range(_WARM_UP + times):
        inlet.expect(1)
        inlet.wait()
        rows = inlet.take_rows()
        if landing.device != rows.device:
            landing.copy_(rows)
            landing[0, 0].item()  # it is there
        clocks.append(time.monotonic_ns())
        inlet.free()
        acks.send_rows(ack)
    return clocks[_WARM_UP:]


def _compute_for(seconds: float) -> None:
    """Busy as a stage is before it sends: it reads weights, so that nothing of what sends and
    receives is in a near cache any more."""
    weights, at = _weights(), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        weights[at : at + _BLOCK].sum()
        at = (at + _BLOCK) % len(weights)


@cache
def _weights() -> torch.Tensor:
    """64 MiB: more than caches hold. Made by the first that computes, not by whoever imports."""
    return torch.ones(2**24)
