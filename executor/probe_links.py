"""What two or more processes measure together: hops and exchanges over the links of a run."""

import time
from collections.abc import Sequence

import torch

from plancc.executor.comm import GlooInlet, GlooOutlet, Group
from plancc.executor.probe_exchange import ExchangeProbe
from plancc.executor.probe_load import read_for
from plancc.ir.sizes import LINK_SLOTS

_ACK = 10_000  # no hop's link has such a number
_GAP_S = 0.002  # a receiver has waited for a whole stage before its rows arrive: never a hot loop
_WARM_UP = 2


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

    def exchange(self, peers: Sequence[int]) -> ExchangeProbe:
        """This process's part in the exchanges of some."""
        return ExchangeProbe(self._group, self._rank, peers)

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


def _send(outlet: GlooOutlet, acks: GlooInlet, times: int, payload: torch.Tensor) -> list[int]:
    clocks = []
    for _ in range(_WARM_UP + times):
        acks.expect(1)
        read_for(_GAP_S)
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
