"""CUDA graphs in Triton's interpreter, as frozen as those of a card.

While one is captured nothing is computed. Its replay gives each kernel the very grid, scalars and
tensors of then, and each copy its two tensors; of the host's code between them nothing runs again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

import torch
from plancc_gpu_plans import Interpreted
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

from plancc.executor.backend import cuda_graphs
from plancc.executor.backend.api import Link
from plancc.executor.backend.cuda import CudaBackend, CudaRank
from plancc.executor.backend.cuda_graphs import StepGraphs

Launch = Callable[[], None]
_RUN = InterpretedFunction.run


@dataclass
class FrozenGraph:
    """Kernels and copies with the arguments that they had, in their order."""

    nodes: list[Launch] = field(default_factory=list)
    num_replays: int = 0

    def replay(self) -> None:
        assert not _is_capturing(), "a graph is replayed while another is captured"
        self.num_replays += 1
        for node in self.nodes:
            node()


@contextmanager
def frozen_graphs() -> Iterator[list[FrozenGraph]]:
    """Ranks that are opened within, and recorders, make graphs of this kind; here they come as
    they are captured. There is one stream, so that nothing has to be ordered."""
    made: list[FrozenGraph] = []

    def captured(launch: Launch) -> Launch:
        made.append(capture(launch))
        return made[-1].replay

    with (
        patch.object(cuda_graphs, "_captured", captured),
        patch.object(cuda_graphs, "_repeated", captured),
        patch.object(cuda_graphs, "_order", lambda first, then: None),
    ):
        yield made


def capture(launch: Launch) -> FrozenGraph:
    """What is launched, which is not run. Fails for what a graph cannot have, or has in memory of
    its own: results that are new tensors, values that the host reads."""
    assert not _is_capturing(), "a graph is captured while another is"
    graph = FrozenGraph()

    def note(kernel: Any, *args: Any, **options: Any) -> None:
        graph.nodes.append(lambda: _RUN(kernel, *args, **options))

    with patch.object(InterpretedFunction, "run", note), _Copies(graph.nodes):
        launch()
    return graph


def _is_capturing() -> bool:
    return InterpretedFunction.run is not _RUN


class _Copies(TorchDispatchMode):
    """Notes copies of tensors, lets views be made, and refuses the rest of torch."""

    def __init__(self, nodes: list[Launch]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._nodes = nodes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.copy_.default:
            self._nodes.append(lambda: func(*args))
            return args[0]
        assert func.is_view, f"{func} within a graph: expected kernels and copies"
        return func(*args, **kwargs or {})


class FrozenSteps(Interpreted):
    """Steps and chunks of all ranks are graphs too, as on cards; Interpreted has segments."""

    def recorder(self, models: Sequence[Any], links: Sequence[Link]) -> StepGraphs:
        return StepGraphs(cast("Sequence[CudaRank]", models), links)


class EagerInterpreted(CudaBackend):
    def __init__(self) -> None:
        super().__init__("cpu", uses_graphs=False)


FROZEN_BACKENDS = {
    "segments": {"cuda": "plancc_gpu_plans:Interpreted"},
    "steps": {"cuda": "plancc_frozen:FrozenSteps"},
    "eager": {"cuda": "plancc_frozen:EagerInterpreted"},
}
