"""All ranks of this process, run in turns on one thread."""

import threading
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from plancc.executor.backend.api import Recorder
from plancc.executor.comm import is_watched
from plancc.executor.pulse import Pulse
from plancc.executor.rank import Rank
from plancc.executor.rank_times import RankTimes
from plancc.executor.step import Step


class LocalRanks:
    """`news` is set by the inlets of a process that serves several ranks of a run of several.

    `recorder`, where the devices have one and all ranks are here, launches steps as one: decode,
    and prompts of one stage. Of several, one is at a chunk while the next is at another.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        pulse: Pulse,
        news: threading.Event,
        recorder: Recorder | None = None,
        *,
        are_all_here: bool = True,
    ) -> None:
        self.ranks = tuple(ranks)
        self.driver = next((rank for rank in self.ranks if rank.seat.is_driver), None)
        self._pulse, self._news, self._recorder = pulse, news, recorder
        self.are_all_here = are_all_here  # of the plan
        self._stamps: dict[Hashable, list[RankTimes]] = {}
        self._outputs: dict[Hashable, list[torch.Tensor | None]] = {}  # of steps launched as one
        self._launches = 0
        self._is_one_stage = len({rank.seat.stage for rank in ranks}) == 1

    def allocated_bytes(self) -> dict[str, dict[str, int]]:
        """By device and ledger column; seats of one device add up."""
        total: dict[str, dict[str, int]] = {}
        for rank in self.ranks:
            row = total.setdefault(rank.seat.device, {})
            for column, size in rank.allocated_bytes().items():
                row[column] = row.get(column, 0) + size
        return total

    def begin(self, step: Step) -> None:
        """Begin a step at the driver; one that is launched as one alone, as nothing else is under
        way then."""
        assert self.driver is not None
        if self._recorder is None or not (step.phase == "decode" or self._is_one_stage):
            self.driver.submit(step)
            self.advance()
            return
        for rank in self.ranks:
            rank.begin(step)
            rank.model.begin(step)
        launches = self._launches
        self.driver.on_logits(step, self._recorder.run(step, lambda: self._launch(step)))
        for rank, output in zip(self.ranks, self._outputs[self._recorder.key(step)], strict=True):
            rank.output = output
        self._pulse.progress += 1
        if step.is_timed and launches == self._launches:
            self._tell_times(step)

    def awaiting(self, *, is_short: bool) -> AbstractContextManager[None]:
        """While the host waits for what a step ends with. Where other processes have a part in a
        short step, that is waiting for them: their rows may never come."""
        return self._pulse.waiting() if is_short and not self.are_all_here else nullcontext()

    def advance(self) -> bool:
        """Let every rank do what it can; whether any did something."""
        self._news.clear()
        return any([rank.advance() for rank in self.ranks])

    def wait(self) -> None:
        """Return when something has come that a rank waits for. Call when `advance` was False."""
        waited = [rank.waits_for for rank in self.ranks if rank.waits_for is not None]
        assert waited, "no rank can move and none waits: the programs are unsound"
        with self._pulse.waiting():
            if any(is_watched(inlet) for inlet in waited):
                self._news.wait()
            else:
                waited[0].wait()

    def _tell_times(self, step: Step) -> None:
        """By the stamps of the launches that were repeated."""
        assert self._recorder is not None
        for rank in self.ranks:
            rank.model.wait()
        for rank, times in zip(self.ranks, self._stamps[self._recorder.key(step)], strict=True):
            rank.times.add_all(times)

    def _launch(self, step: Step) -> torch.Tensor:
        """A whole step, on every rank, to its logits; the devices may still be at it."""
        self._launches += 1
        kept = [rank.times for rank in self.ranks]
        for rank in self.ranks:
            rank.times = RankTimes()
        logits = self._launch_all(step)
        assert self._recorder is not None
        key = self._recorder.key(step)
        self._outputs[key] = [rank.output for rank in self.ranks]
        if step.is_timed:
            self._stamps[key] = [rank.times for rank in self.ranks]
        for rank, times in zip(self.ranks, kept, strict=True):
            rank.times = times
        return logits

    def _launch_all(self, step: Step) -> torch.Tensor:
        assert self.driver is not None
        self.driver.submit(step)
        while self.driver.num_flights:
            assert self.advance(), "all ranks are here, so one of them can move"
        while self.advance():
            pass  # frees and the like, behind the driver's last instruction
        assert self.driver.sampled is not None
        return self.driver.sampled
