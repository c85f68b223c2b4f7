"""Rounds of layers as ranks of a group have them, timed in each of several processes.

A round is a layer's computing and what ranks send each other after it; the same computing is timed
in each rank alone. What is lost between them (probe_losses) is also what gloo's thread takes from
computing, a wait for a core, and memory that two ranks read at once.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import torch

from plancc.executor.comm import Group
from plancc.executor.probe_load import read_blocks
from plancc.executor.probe_losses import Rounds

_TAG = 20_000  # no hop's link has such a number
_TURNS = 10  # a machine's rate drifts: each is measured a little in each turn
_WARM_UP = 2
_SHORT_BLOCKS, _LONG_BLOCKS = 56, 400  # 14 and 100 MiB: a layer of a small and of a large model
_SHORT_ROUNDS, _LONG_ROUNDS = 10, 8  # a turn
_TINY = 64


class ExchangeProbe:
    """This process as one rank of the workers `peers`; the first of them is an owner."""

    def __init__(self, group: Group, rank: int, peers: Sequence[int]) -> None:
        self._group, self._rank, self._peers = group, rank, tuple(peers)
        self._others = [peer for peer in peers if peer != rank]

    def rounds(self, sizes: Sequence[int], times: int) -> Rounds:
        """Means over turns, at the same time in each of the workers."""
        turns = list(self._turns(sizes, max(1, times // _TURNS)))
        return Rounds.mean(turns)

    def _turns(self, sizes: Sequence[int], times: int) -> Iterator[Rounds]:
        for _ in range(_TURNS):
            yield Rounds(
                alone_us=self._alone_us(_SHORT_BLOCKS, _SHORT_ROUNDS),
                long_alone_us=self._alone_us(_LONG_BLOCKS, _LONG_ROUNDS),
                long_us=self._together_us(_TINY, _LONG_BLOCKS, _LONG_ROUNDS),
                together_us=tuple(self._together_us(size, _SHORT_BLOCKS, times) for size in sizes),
                owned_us=tuple(self._owned_us(size, times) for size in sizes),
            )

    def _alone_us(self, blocks: int, count: int) -> float:
        """Of a round's computing, while the others wait for their turn."""
        found = 0.0
        for peer in self._peers:
            self._meet()
            if peer == self._rank:
                found = _mean_us(lambda: read_blocks(blocks), count)
        self._meet()
        return found

    def _together_us(self, size: int, blocks: int, count: int) -> float:
        """Everyone computes at once, and ends with the rows of every other."""
        mine = torch.zeros(size, dtype=torch.uint8)
        theirs = {peer: torch.zeros_like(mine) for peer in self._others}
        return self._met_us(lambda: self._together(mine, theirs, blocks), count)

    def _owned_us(self, size: int, count: int) -> float:
        """The owner computes half a layer and sends rows; then everyone computes the other half,
        and the owner ends with the rows of every other."""
        mine = torch.zeros(size, dtype=torch.uint8)
        theirs = {peer: torch.zeros_like(mine) for peer in self._others}
        is_owner, owner = self._rank == self._peers[0], self._peers[0]
        if is_owner:
            return self._met_us(lambda: self._own(mine, theirs), count)
        return self._met_us(lambda: self._help(mine, theirs[owner], owner), count)

    def _met_us(self, work: Callable[[], None], count: int) -> float:
        self._meet()
        for _ in range(_WARM_UP):
            work()
        found = _mean_us(work, count)
        self._meet()
        return found

    def _meet(self) -> None:
        """Nobody goes on before all are here."""
        tiny = torch.zeros(_TINY, dtype=torch.uint8)
        self._together(tiny, {peer: torch.zeros_like(tiny) for peer in self._others}, 0)

    def _together(self, mine: torch.Tensor, theirs: dict[int, torch.Tensor], blocks: int) -> None:
        """As in a run: theirs are asked for, each rank computes, and then sends its own."""
        works = [self._group.recv(buffer, peer, _TAG) for peer, buffer in theirs.items()]
        read_blocks(blocks)
        works += [self._group.send(mine, peer, _TAG) for peer in theirs]
        for work in works:
            work.wait()

    def _own(self, mine: torch.Tensor, theirs: dict[int, torch.Tensor]) -> None:
        works = [self._group.recv(buffer, peer, _TAG) for peer, buffer in theirs.items()]
        read_blocks(_SHORT_BLOCKS // 2)
        works += [self._group.send(mine, peer, _TAG) for peer in theirs]
        read_blocks(_SHORT_BLOCKS // 2)
        for work in works:
            work.wait()

    def _help(self, mine: torch.Tensor, normed: torch.Tensor, owner: int) -> None:
        self._group.recv(normed, owner, _TAG).wait()
        read_blocks(_SHORT_BLOCKS // 2)
        self._group.send(mine, owner, _TAG).wait()


def _mean_us(work: Callable[[], None], count: int) -> float:
    """The mean, as a step adds rounds up: those that are late count."""
    begin = time.monotonic_ns()
    for _ in range(count):
        work()
    return (time.monotonic_ns() - begin) / 1e3 / count
