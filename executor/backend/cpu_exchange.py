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
        self._turn = 0
        tiles = group.shares[-1][1]
        spans = tuple(span for share in group.shares for span in subtree_roots(tiles, share))
        self._merges = np.array(root_merges(spans), np.int64)
        self._table = np.zeros((len(spans), 2), np.int64)
        self._firsts = np.zeros(len(spans), np.int64)
        self._table[:, 1] = np.repeat(group.roots, group.roots) * self._row_bytes

    def turn(self) -> None:
        self._turn = (self._turn + 1) % LINK_SLOTS

    def rows(self, count: int, *, are_normed: bool) -> torch.Tensor:
        """What a segment of the group ends with."""
        if not are_normed:
            return self._slots[self._turn][:count]
        assert self._normed is not None
        return self._normed[:count]

    def take(self, parts: Sequence[torch.Tensor], bias: int) -> None:
        """Where every rank's rows [rows, its roots, hidden_size] lie, in rank order."""
        at = 0
        for part in parts:
            assert part.is_contiguous()
            for root in range(part.shape[1]):
                self._firsts[at] = part.data_ptr() + root * self._row_bytes
                at += 1
        self.is_pending, self._bias = True, bias

    def enter(self, step: Any, row: int) -> None:
        """Into a STEP: where the partial rows from a row of the step on go to and come from.

        normed_out is left at the first row's.
        """
        slot = self._slots[self._turn]
        step["partials"] = slot.data_ptr() + row * slot.shape[1] * self._row_bytes
        step["normed_out"] = self._normed.data_ptr() if self._normed is not None else 0
        np.multiply(self._table[:, 1], row, out=self._table[:, 0])
        self._table[:, 0] += self._firsts
        step["roots"], step["num_roots"] = self._table.ctypes.data, len(self._table)
        step["root_merges"] = self._merges.ctypes.data
        step["sum_bias"] = self._bias
