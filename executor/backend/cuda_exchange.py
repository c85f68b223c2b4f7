"""What a CUDA rank of a TP group has besides: its partial rows, and where everybody's roots lie.

Nothing is copied and nothing waits: the kernel that adds reads each rank's rows where `take` was
told that they are. The caller orders streams.
"""

from collections.abc import Sequence

import torch

from plancc.executor.backend.cuda_memory import Shape, allocate, total_bytes
from plancc.executor.group import Group, root_merges
from plancc.executor.row_views import RowViews
from plancc.ir.instruction import Run
from plancc.ir.sizes import LINK_SLOTS
from plancc.ir.tiles import Span, subtree_roots
from plancc.kernels.gpu.copy import copy_rows
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.partials import partials
from plancc.kernels.gpu.prompt_down import prompt_partials
from plancc.kernels.gpu.roots import add_roots
from plancc.kernels.gpu.tilings import Tiling, power_of_two

Tensor = torch.Tensor
_FP32 = 4


class CudaExchange:
    """Partial rows [rows, roots, hidden_size] in two slots, by turns: one is still read by the
    others while the next layer's is written. An owner has `normed` besides, what it sends them.

    A decode row is normed by two things: itself times the gain, and float32 sums of squares that
    give a factor for after the product. The sums of all rows go ahead of them, in rows of the same
    message (squares_rows); prompt rows are normed whole.
    """

    def __init__(
        self, group: Group, rows: int, slots: int, hidden_size: int, dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        """rows: the most that a step has; slots: the most of decode."""
        self.group, self._max_rows, self._max_decode_rows = group, rows, slots
        self._hidden_size, self._itemsize = hidden_size, dtype.itemsize
        tiles = group.shares[-1][1]
        spans = [subtree_roots(tiles, share) for share in group.shares]
        self.share: Span = group.shares[group.number]
        self._roots = spans[group.number]
        self._merges = root_merges(tuple(span for of_rank in spans for span in of_rank))
        shape = (LINK_SLOTS, rows, len(self._roots), hidden_size)
        sizes: dict[str, tuple[Shape, torch.dtype]] = {"partials": (shape, torch.float32)}
        if group.is_owner:
            sizes["normed"] = ((rows, hidden_size), dtype)
        buffers = allocate(sizes, device)
        self.normed = buffers.get("normed")
        self.allocated_bytes = total_bytes(buffers.values())
        self._slots = RowViews(buffers["partials"])
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
        """Before a run: the other slot's turn, if partial rows come of it. Whether it begins with
        a sum."""
        if _ends_with_partials(run):
            self._slot = (self._slot + 1) % LINK_SLOTS
        return self.is_pending

    def end(self, run: Run, num_rows: int) -> Tensor | None:
        """Once a run is launched: what it ends with that the group exchanges."""
        self._parts = ()
        if run.part == "mixer":
            assert self.normed is not None
            return self.normed[: self.normed_rows(num_rows)]
        return self._rows(num_rows) if _ends_with_partials(run) else None

    def bring(self, num_rows: int, normed: Tensor, room: Tensor) -> Tensor:
        """Normed rows as an owner's kernels left them, for this rank's to read: its own where they
        are, another's in `room`, since a product reads them many times."""
        if self.group.is_owner:
            return normed
        here = room[: self.normed_rows(num_rows)]
        copy_rows(normed, here)
        return here

    def cut_normed(self, normed: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """(rows [count, hidden_size], sums of squares) of what an owner sends of decode rows."""
        width, itemsize = normed.shape[1], normed.element_size()
        ahead, chunks = squares_rows(count, width, itemsize), -(-width // CHUNK)
        sums = normed[:ahead].view(-1)[: count * chunks * _FP32 // itemsize].view(torch.float32)
        return normed[ahead : ahead + count], sums.view(count, chunks)

    def normed_rows(self, num_rows: int) -> int:
        """Of what an owner sends in a step of so many rows: decode rows are filled up to a power
        of two, and prompts of as few rows are sent alike, so that who receives need not be told."""
        if num_rows > self._max_decode_rows:
            return num_rows
        count = power_of_two(num_rows)
        return count + squares_rows(count, self._hidden_size, self._itemsize)

    def take(self, parts: Sequence[Tensor]) -> None:
        """Every rank's partial rows, in rank order, on devices that this one can read."""
        assert len(parts) == len(self.group.shares), f"{len(parts)} of {len(self.group.shares)}"
        self._parts = tuple(parts)

    def add(
        self, residual: Tensor, gained: Tensor | None = None, squares: Tensor | None = None,
        gain: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Launch the sum of what `take` was given, as kernels.gpu.roots adds it. Rows that only
        fill up a step have no partial rows where there is no room for them; those of a chunk have,
        in every slot, be they sent or not."""
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

    def prompt(
        self, x: Tensor, down: Tensor, bounds: tuple[int, ...], group: int, *,
        waiting: Tensor | None,
    ) -> None:  # fmt: skip
        """The same for prompt rows; waiting as in prompt_down."""
        prompt_partials(x, down, self._rows(x.shape[0]), roots=self._roots, bounds=bounds,
                        group=group, waiting=waiting)  # fmt: skip

    def _rows(self, count: int) -> Tensor:
        return self._slots.at(self._slot, count)


def squares_rows(num_rows: int, hidden_size: int, itemsize: int) -> int:
    """Rows of the model's format that the sums of squares of so many decode rows take."""
    sums = num_rows * -(-hidden_size // CHUNK)
    return -(-sums * _FP32 // (hidden_size * itemsize))


def _ends_with_partials(run: Run) -> bool:
    return run.layers[0] != run.layers[1] and run.part != "mixer"
