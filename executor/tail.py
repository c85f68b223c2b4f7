"""What a rank does in a decode step once its news is through, launched as one.

For a rank of a process among several whose rows all go by wires: nothing there waits on the host,
so the device can be given all of it at once, as a step of all ranks is where they share a process.
"""

from collections.abc import Hashable

import torch

from plancc.executor.backend.api import Recorder
from plancc.executor.flight import Flight
from plancc.executor.rank import Rank
from plancc.executor.rank_times import RankTimes
from plancc.executor.step import Step


class Tail:
    """Of one rank, from its instruction `first` on."""

    def __init__(self, rank: Rank, recorder: Recorder, first: int) -> None:
        self._rank, self._recorder, self._first = rank, recorder, first
        self._end = len(rank.seat.program.instructions)
        self._stamps: dict[Hashable, RankTimes] = {}
        self._launches = 0

    def __call__(self, flight: Flight) -> None:
        """Bring a decode step that is there from the first instruction to its end."""
        step = flight.step
        if flight.at != self._first or not flight.is_decode or step is None:
            return
        rank, launches = self._rank, self._launches
        rank.model.begin(step)
        result = self._recorder.run(step, lambda: self._launch(step))
        if rank.seat.is_driver:
            rank.on_logits(step, result)
        rank.pulse.progress += 1
        flight.at = self._end
        if step.is_timed and launches == self._launches:
            rank.model.wait()
            rank.times.add_all(self._stamps[self._recorder.key(step)])

    def _launch(self, step: Step) -> torch.Tensor:
        """Interpret it. What it took is told by the stamps of the launches that are repeated."""
        self._launches += 1
        rank, flight = self._rank, Flight(step, at=self._first)
        kept, rank.times = rank.times, RankTimes()
        while flight.at < self._end:
            assert rank.fly(flight, self._end), "nothing in it waits on the host"
        rank.land(flight)
        if step.is_timed:
            self._stamps[self._recorder.key(step)] = rank.times
        rank.times = kept
        assert rank.output is not None, "a program runs something"
        return rank.output
