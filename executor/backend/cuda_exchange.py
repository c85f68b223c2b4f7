"""What a CUDA rank of a TP group has besides: its partial rows, and where everybody's roots lie.

Nothing is copied and nothing waits: the kernel that adds reads each rank's rows where `take` was
told that they are. The caller orders streams.
"""

from collections.abc import Sequence

import torch

from plancc.executor.backend.cuda_memory import allocate, total_bytes
from plancc.executor.group import Group, root_merges
from plancc.ir.instruction import Run
from plancc.ir.sizes import LINK_SLOTS
from plancc.ir.tiles import Span, subtree_roots
from plancc.kernels.gpu.partials import partials
from plancc.kernels.gpu.prompt_partials import prompt_partials
from plancc.kernels.gpu.roots import add_roots
from plancc.kernels.gpu.tilings import Tiling

Tensor = torch.Tensor


class CudaExchange:
    """Partial rows [rows, roots, hidden_size] in two slots, by turns: one is still read by the
    others while the next layer's is written."""

    def __init__(self, group: Group, rows: int, hidden_size: int, device: torch.device) -> None:
        self.group, self._max_rows = group, rows
        tiles = group.shares[-1][1]
        spans = [subtree_roots(tiles, share) for share in group.shares]
        self.share: Span = group.shares[group.number]
        self._roots = spans[group.number]
        self._merges = root_merges(tuple(span for of_rank in spans for span in of_rank))
        shape = (rows, len(self._roots), hidden_size)
        names = [f"partials{slot}" for slot in range(LINK_SLOTS)]
        buffers = allocate({name: (shape, torch.float32) for name in names}, device)
        self.allocated_bytes = total_bytes(buffers.values())
        self._slots = [buffers[name] for name in names]
        self._slot = 0
        self._parts: tuple[Tensor, ...] = ()

    @property
    def is_pending(self) -> bool:
        """Whether rows have come that the next run adds."""
        return bool(self._parts)

    @property
    def key(self) -> tuple[int, ...]:
        """What a graph of the next run would have frozen: where it reads, and where it writes."""
        return (self._slot, *(part.data_ptr() for part in self._parts))

    def begin(self, run: Run) -> bool:
        """Before a run: the other slot's turn, if it has a layer. Whether it begins with a sum."""
        if run.layers[0] != run.layers[1]:
            self._slot = (self._slot + 1) % LINK_SLOTS
        return self.is_pending

    def end(self, run: Run, count: int) -> Tensor | None:
        """Once a run is launched: the partial rows that it ends with, if it has a layer."""
        self._parts = ()
        return self._rows(count) if run.layers[0] != run.layers[1] else None

    def take(self, parts: Sequence[Tensor]) -> None:
        """Every rank's partial rows, in rank order, on devices that this one can read."""
        assert len(parts) == len(self.group.shares), f"{len(parts)} of {len(self.group.shares)}"
        self._parts = tuple(parts)

    def add(
        self, residual: Tensor, gained: Tensor | None, squares: Tensor | None, gain: Tensor | None
    ) -> None:
        """Launch the sum of what `take` was given, as kernels.gpu.roots adds it. Rows that only
        fill up a step have no partial rows where there is no room for them."""
        count = min(residual.shape[0], self._max_rows)
        add_roots(self._parts, self._merges, residual[:count], gained, squares, gain)

    def decode(
        self, x: Tensor, down: Tensor, tiling: Tiling, bounds: tuple[int, ...], group: int, *,
        halves: Tensor, counters: Tensor,
    ) -> None:  # fmt: skip
        """Launch the product of x and this rank's columns of down, into the slot."""
        count = min(x.shape[0], self._max_rows)
        partials(x[:count], down, self._rows(count), tiling=tiling, roots=self._roots,
                 halves=halves, counters=counters, bounds=bounds, group=group)  # fmt: skip

    def prompt(self, x: Tensor, down: Tensor, bounds: tuple[int, ...], group: int) -> None:
        """The same for prompt rows."""
        prompt_partials(x, down, self._rows(x.shape[0]), roots=self._roots, bounds=bounds,
                        group=group)  # fmt: skip

    def _rows(self, count: int) -> Tensor:
        return self._slots[self._slot][:count]
