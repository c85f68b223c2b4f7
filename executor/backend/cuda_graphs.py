"""Launches as CUDA graphs: a segment of a rank, or a step of all ranks of this process with its
hops and exchanges; of decode, and of a prompt's chunks.

For a step the ranks' programs are interpreted once as usual and once more while their streams are
captured. The driver's stream begins and ends the graph; the others are forked from it and joined.
Of a rank that has its process for itself, what it does by wires is captured with the rest.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plancc.executor.backend.api import Link
from plancc.executor.step import Step

if TYPE_CHECKING:
    from plancc.executor.backend.cuda import CudaRank

_MOST_LAYERS = 2048  # of a rank's segments, or chunks: at nine launches of some 8 KiB, 144 MiB


Launch = Callable[[], None]


@dataclass(frozen=True)
class _Recorded:
    replay: Launch
    result: torch.Tensor


class SegmentGraphs:
    """Launches of a rank's stream, by what they depend on: made as they come the first time, which
    compiles what is new, captured the second time, and replayed from then on.

    Graphs take room on the device: those that were not used for longest make room for others.
    Where nothing can be captured, what stands for a graph is the same launches once more: they may
    depend on nothing that a graph would have frozen.
    """

    def __init__(self, *, is_used: bool, is_cuda: bool, most_layers: int = _MOST_LAYERS) -> None:
        self._is_used, self._capture = is_used, _captured if is_cuda else _repeated
        self._is_cuda = is_cuda
        self.is_paused = False  # what is launched is part of a larger graph
        self._most, self._num_layers = most_layers, 0
        self._by_key: dict[Hashable, tuple[Launch | None, int]] = {}

    def run(self, key: Hashable, launch: Launch, *, num_layers: int) -> None:
        """What `launch` does, on the current stream."""
        if not self._is_used or self.is_paused:
            launch()
        elif key not in self._by_key:
            launch()
            self._keep(key, None, 0)
        else:
            replay, size = self._by_key.pop(key)
            if replay is None:
                replay, size = self._capture(launch), num_layers
                self._num_layers += size
            replay()
            self._keep(key, replay, size)

    def _keep(self, key: Hashable, replay: Launch | None, size: int) -> None:
        """As the one that was used last."""
        self._by_key[key] = replay, size
        while self._num_layers > self._most and len(self._by_key) > 1:
            if self._is_cuda:
                torch.cuda.synchronize()  # it may be at the one that goes
            self._num_layers -= self._by_key.pop(next(iter(self._by_key)))[1]


def _captured(launch: Launch) -> Launch:
    """A replay; nothing is launched yet. Other threads may ask the driver things meanwhile."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        launch()
    finally:
        graph.capture_end()
    replay: Launch = graph.replay
    return replay


def _repeated(launch: Launch) -> Launch:
    return launch


class StepGraphs:
    """One graph for each number of rows and each length of decode, to a power of two; of prompts,
    whose chunks may be few, for each number of blocks that was met before."""

    def __init__(self, ranks: Sequence["CudaRank"], links: Sequence[Link]) -> None:
        self._ranks, self._links = tuple(ranks), tuple(links)
        self._main = next((rank for rank in ranks if rank.has_head), ranks[0])
        self._others = tuple(rank for rank in ranks if rank is not self._main)
        self._recorded: dict[Hashable, _Recorded] = {}
        self._met: dict[Hashable, None] = {}

    def key(self, step: Step) -> Hashable:
        if step.phase == "prompt":
            return (self._main.filled(step.num_rows), step.wants_logits)
        reach = self._main.reach(max(step.positions))
        return (step.num_rows, reach, step.wants_logits, step.is_timed)

    def run(self, step: Step, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        key = self.key(step)
        found = self._recorded.pop(key, None)
        if found is None and step.phase == "prompt" and key not in self._met:
            self._met[key] = None
            with self._plainly():
                return launch()
        if found is None:
            return self._record(key, launch)
        self._recorded[key] = found  # the one that was used last
        with self._joined():
            found.replay()
        return found.result

    def _record(self, key: Hashable, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The step's results are those of the first time; the second only fills the graph."""
        with self._plainly(), self._main.on_stream():
            result = launch()  # compiles what is new
            self._rest()
            replay = _captured(lambda: self._launch_forked(launch))
            self._rest()
        self._recorded[key] = _Recorded(replay, result)
        self._make_room()
        return result

    def _make_room(self) -> None:
        """Decode needs few graphs, prompts in large chunks may need many: the one that was not used
        for longest goes. None is at work."""
        prompts = [key for key in self._recorded if key in self._met]
        if len(prompts) * self._main.num_layers > _MOST_LAYERS and len(prompts) > 1:
            del self._recorded[prompts[0]]

    def _launch_forked(self, launch: Callable[[], torch.Tensor]) -> None:
        """With the other ranks' streams as branches of what is captured on the driver's."""
        for rank in self._others:
            _order(self._main, rank)
        launch()
        for rank in self._others:
            _order(rank, self._main)

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """On the driver's stream: after all that the others hold, before all they are given."""
        for rank in self._others:
            _order(rank, self._main)
        with self._main.on_stream():
            yield
        for rank in self._others:
            _order(self._main, rank)

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """No rank makes graphs of its own."""
        for rank in self._ranks:
            rank.graphs.is_paused = True
        try:
            yield
        finally:
            for rank in self._ranks:
                rank.graphs.is_paused = False

    def _rest(self) -> None:
        """Nothing is under way, and no event of before is waited for."""
        for rank in self._ranks:
            rank.wait()
        for link in self._links:
            link.forget()


def _order(first: "CudaRank", then: "CudaRank") -> None:
    """What `then` is given from now on waits for all that `first` has."""
    assert first.stream is not None
    assert then.stream is not None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(first.stream)
    then.stream.wait_event(event)
