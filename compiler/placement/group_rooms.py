"""Bytes of a group's stages: what each rank has left for its tiles, over flat runs of layers."""

from functools import cached_property

import numpy as np

from plancc.compiler.placement.columns import need_of
from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.shares import ShareSizes, deal_spans
from plancc.compiler.placement.unit_columns import Bools
from plancc.compiler.placement.units import Unit
from plancc.ir.buffers import Layout


class GroupRooms:
    """For one head mode; `first` and `end` are arrays of one length, a run of layers each."""

    def __init__(self, problem: Problem, mode: str) -> None:
        self.problem, self.mode = problem, mode
        self.sizes = ShareSizes(problem)
        self._buffers: dict[tuple[str, int, int], Table] = {}
        self._fixed: dict[tuple[Layout, bool, bool, int], Table] = {}

    def room(self, unit: Unit, rank: int, blocks: int, first: Table, end: Table) -> Table:
        """Bytes that a rank has for tiles and partial rows."""
        seat = unit.seats[rank]
        budget = int(self.problem.budgets[seat])
        key = self.problem.devices[seat].layout, unit.mixer == "replicated", rank == 0, blocks
        if key not in self._fixed:
            self._fixed[key] = self._fixed_bytes(*key)
        return np.asarray(budget - self._fixed[key][first, end])

    def _fixed_bytes(
        self, layout: Layout, is_replicated: bool, is_lead: bool, blocks: int
    ) -> Table:
        """[L + 1, L + 1] what a rank needs beside its tiles and its partial rows."""
        holds_rows = is_lead or is_replicated
        held = self.sizes.held if holds_rows else self.sizes.uncut
        fixed = held[None, :] - held[:, None] + self._base(layout, is_lead, holds_rows)
        if is_replicated:
            fixed[0, :] += self.problem.hop_buffer
        if is_lead:
            chosen = [b for k, b in enumerate(self.problem.free_blocks) if blocks >> k & 1]
            fixed += sum(block.size_bytes for block in chosen)
        return fixed

    def _base(self, layout: Layout, is_lead: bool, holds_rows: bool) -> Table:
        if is_lead:
            return self._lead_base(layout)
        return self._other_base(layout) if holds_rows else self.problem.workspace[layout, False]

    def _lead_base(self, layout: Layout) -> Table:
        """Scratch, hops, and the ends' blocks: as on one device."""
        size = self.problem.layer_bytes
        return need_of(self.problem, self.mode, layout) - (size[None, :] - size[:, None])

    def _other_base(self, layout: Layout) -> Table:
        """Scratch and hops of a rank that holds rows but no blocks."""
        base = self.problem.workspace[layout, False] + 2 * self.problem.hop_buffer
        base[0, :] -= self.problem.hop_buffer
        base[:, self.problem.num_layers] -= self.problem.hop_buffer
        return base

    def may_fit(self, unit: Unit, blocks: int, first: Table, end: Table) -> Bools:
        """True where the ranks' rooms together hold the tiles: necessary, not enough."""
        rooms = [self.room(unit, rank, blocks, first, end) for rank in range(unit.size)]
        whole = self.sizes.whole[end] - self.sizes.whole[first]
        fits: Bools = (np.minimum.reduce(rooms) > 0) & (np.add.reduce(rooms) >= whole)
        return fits

    def caps(self, unit: Unit, blocks: int, tiles: int, first: Table, end: Table) -> Table:
        """[ranks, runs] the most tiles that a rank may have, all else aside."""
        if tiles not in self._least_runs:
            self._least_runs[tiles] = self.sizes.least_run(tiles)
        runs, buffers = self._least_runs[tiles], self._buffers_of(unit, tiles).min(axis=0)
        whole = runs[tiles, end] - runs[tiles, first]
        rows = []
        for rank in range(unit.size):
            room = self.room(unit, rank, blocks, first, end) - buffers[rank]
            cap = np.clip(room * tiles // np.maximum(whole, 1) - 1, 0, tiles)
            for _ in range(3):  # division may err by a tile either way
                more = np.minimum(cap + 1, tiles)
                cap += (cap < tiles) & (runs[more, end] - runs[more, first] <= room)
            rows.append(np.where(room >= 0, cap, 0))
        return np.stack(rows)

    def left(self, unit: Unit, blocks: int, tiles: int, first: Table, end: Table,
             deals: Table) -> Table:  # fmt: skip
        """[deals, runs] what the tightest rank has left, for some of the deals."""
        spans, buffers = deal_spans(unit.size, tiles)[deals], self._buffers_of(unit, tiles)[deals]
        before = self._before(tiles)
        spent = before[:, end] - before[:, first]  # [tiles + 1, runs]
        left: Table | None = None
        for rank in range(unit.size):
            room = self.room(unit, rank, blocks, first, end)[None, :] - buffers[:, rank, None]
            room = room - (spent[spans[:, rank, 1]] - spent[spans[:, rank, 0]])
            left = room if left is None else np.minimum(left, room)
        assert left is not None
        return left

    def _buffers_of(self, unit: Unit, tiles: int) -> Table:
        """[deals, ranks]"""
        key = unit.mixer, unit.size, tiles
        if key not in self._buffers:
            self._buffers[key] = self.sizes.buffers(unit, tiles)
        return self._buffers[key]

    def _before(self, tiles: int) -> Table:
        if tiles not in self._before_by_tiles:
            self._before_by_tiles[tiles] = self.sizes.before(tiles)
        return self._before_by_tiles[tiles]

    @cached_property
    def _least_runs(self) -> dict[int, Table]:
        return {}

    @cached_property
    def _before_by_tiles(self) -> dict[int, Table]:
        return {}
