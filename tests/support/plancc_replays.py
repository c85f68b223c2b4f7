"""How often a graph is replayed, or what stands for one where nothing can be captured."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from plancc.executor.backend.cuda_graphs import SegmentGraphs


@contextmanager
def counted_replays() -> Iterator[Counter[Any]]:
    """By key; of several ranks the most. Keys that are met once are not in it."""
    run, replays = SegmentGraphs.run, dict[tuple[int, Hashable], int]()
    most = Counter[Any]()

    def counted(
        graphs: SegmentGraphs, key: Hashable, launch: Callable[[], None], *, num_layers: int
    ) -> None:
        if key in graphs._by_key:
            replays[id(graphs), key] = replays.get((id(graphs), key), 0) + 1
            most[key] = max(most[key], replays[id(graphs), key])
        run(graphs, key, launch, num_layers=num_layers)

    with patch.object(SegmentGraphs, "run", counted):
        yield most
