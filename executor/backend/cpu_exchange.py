"""What a CPU rank of a TP group has besides: its partial rows, and where everybody's roots lie."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from plancc.executor.backend.cpu_memory import allocate, total_bytes
from plancc.executor.group import Group, root_merges
from plancc.ir.sizes import LINK_SLOTS
from plancc.ir.tiles import subtree_roots

_FP32 = 4


class CpuExchange:
    """Partial rows [rows, roots, hidden_size] in two slots, by turns: one is still read by the
    others while the next layer's is written."""

    def __init__(self, group: Group, rows: int, hidden_size: int, dtype: torch.dtype) -> None:
        self.group = group
        self.is_pending = False  # roots have come that the next run adds
        self._bias = 0  # address of what is added once to their sum
        self._row_bytes = hidden_size * _FP32
        own = group.roots[group.number]
        sizes: dict[str, Any] = {
            f"partials{slot}": ((rows, own, hidden_size), torch.float32)
            for slot in range(LINK_SLOTS)
        }
        if group.is_owner:
            sizes["normed"] = ((rows, hidden_size), dtype)
        buffers = allocate(sizes)
        self.allocated_bytes = total_bytes(buffers.values())
        self._normed = buffers.get("normed")
        self._slots = [buffers[f"partials{slot}"] for slot in range(LINK_SLOTS)]
        self._slots_at = [slot.data_ptr() for slot in self._slots]
        self._normed_at = self._normed.data_ptr() if self._normed is not None else 0
        self._own_bytes = own * self._row_bytes
        self._views: dict[tuple[int, int], torch.Tensor] = {}
        self._turn = 0
        tiles = group.shares[-1][1]
        spans = tuple(span for share in group.shares for span in subtree_roots(tiles, share))
        self._merges = np.array(root_merges(spans), np.int64)
        self._table = np.zeros((len(spans), 2), np.int64)
        self._firsts = np.zeros(len(spans), np.int64)
        self._table[:, 1] = np.repeat(group.roots, group.roots) * self._row_bytes

    def tell(self, step: Any) -> None:
        """Into a STEP: what never changes."""
        step["roots"], step["num_roots"] = self._table.ctypes.data, len(self._table)
        step["root_merges"] = self._merges.ctypes.data

    def turn(self) -> None:
        self._turn = (self._turn + 1) % LINK_SLOTS

    def rows(self, count: int, *, are_normed: bool) -> torch.Tensor:
        """What a segment of the group ends with; a view that is made once for each count."""
        key = (-1 if are_normed else self._turn, count)
        if key not in self._views:
            buffer = self._normed if are_normed else self._slots[self._turn]
            assert buffer is not None
            self._views[key] = buffer[:count]
        return self._views[key]

    def take(self, parts: Sequence[torch.Tensor], bias: int) -> None:
        """Where every rank's rows [rows, its roots, hidden_size] lie, in rank order."""
        at = 0
        for part, roots in zip(parts, self.group.roots, strict=True):
            first = part.data_ptr()
            for root in range(roots):
                self._firsts[at] = first + root * self._row_bytes
                at += 1
        self._table[:, 0] = self._firsts
        self.is_pending, self._bias = True, bias

    def enter(self, row: int, start: int) -> tuple[int, int, int]:
        """normed_out, partials and sum_bias of STEP for the rows from `row` on, whose hidden rows
        begin at `start`; and the roots of those rows."""
        if row:
            np.multiply(self._table[:, 1], row, out=self._table[:, 0])
            self._table[:, 0] += self._firsts
        partials = self._slots_at[self._turn] + row * self._own_bytes
        return (self._normed_at + start if self._normed_at else 0, partials, self._bias)
