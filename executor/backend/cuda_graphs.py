"""A decode step of all ranks of this process as one CUDA graph: segments, hops and exchanges.

The ranks' programs are interpreted once as usual and once more while their streams are captured.
The driver's stream begins and ends the graph; the others are forked from it and joined. Of a rank
that has its process for itself, what it does by wires is captured with the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plancc.executor.backend.api import Link
from plancc.executor.step import Step

if TYPE_CHECKING:
    from plancc.executor.backend.cuda import CudaRank

_Key = tuple[int, int, bool, bool]


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    result: torch.Tensor


class StepGraphs:
    """One graph for each number of rows and each length, to a power of two."""

    def __init__(self, ranks: Sequence["CudaRank"], links: Sequence[Link]) -> None:
        self._ranks, self._links = tuple(ranks), tuple(links)
        self._main = next((rank for rank in ranks if rank.has_head), ranks[0])
        self._others = tuple(rank for rank in ranks if rank is not self._main)
        self._recorded: dict[_Key, _Recorded] = {}

    def key(self, step: Step) -> _Key:
        reach = self._main.reach(max(step.positions))
        return (step.num_rows, reach, step.wants_logits, step.is_timed)

    def run(self, step: Step, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        key = self.key(step)
        found = self._recorded.get(key)
        if found is None:
            return self._record(key, launch)
        with self._joined():
            found.graph.replay()
        return found.result

    def _record(self, key: _Key, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The step's results are those of the first time; the second only fills the graph."""
        with self._plainly(), self._main.on_stream():
            result = launch()  # compiles what is new
            self._rest()
            graph = torch.cuda.CUDAGraph()
            # other threads may ask the driver things meanwhile: NCCL's do
            with (
                torch.cuda.graph(
                    graph, stream=self._main.stream, capture_error_mode="thread_local"
                ),
                self._forked(),
            ):
                launch()
            self._rest()
        self._recorded[key] = _Recorded(graph, result)
        return result

    @contextmanager
    def _forked(self) -> Iterator[None]:
        """The other ranks' streams, as branches of what is captured on the driver's."""
        for rank in self._others:
            _order(self._main, rank)
        yield
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
            rank.is_recorded = True
        try:
            yield
        finally:
            for rank in self._ranks:
                rank.is_recorded = False

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
