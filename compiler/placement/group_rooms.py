"""Bytes of a group's stages: what each rank has left for its tiles, over flat runs of layers."""

from functools import cached_property

import numpy as np

from plancc.compiler.placement.columns import need_of
from plancc.compiler.placement.problem import Problem, Table
from plancc.compiler.placement.shares import ShareSizes, deal_spans
from plancc.compiler.placement.unit_columns import Bools
from plancc.compiler.placement.units import Unit


class GroupRooms:
    """For one head mode; `first` and `end` are arrays of one length, a run of layers each."""

    def __init__(self, problem: Problem, mode: str) -> None:
        self.problem, self.mode = problem, mode
        self.sizes = ShareSizes(problem)
        self._buffers: dict[tuple[str, int, int], Table] = {}

    def room(self, unit: Unit, rank: int, blocks: int, first: Table, end: Table) -> Table:
        """Bytes that a rank has for tiles and partial rows."""
        budget = int(self.problem.budgets[unit.seats[rank]])
        return budget - self._fixed(unit, rank, blocks, first, end)

    def _fixed(self, unit: Unit, rank: int, blocks: int, first: Table, end: Table) -> Table:
        holds_rows = rank == 0 or unit.mixer == "replicated"
        held = self.sizes.held if holds_rows else self.sizes.uncut
        fixed = held[end] - held[first] + self._base(rank, holds_rows)[first, end]
        if unit.mixer == "replicated":
            fixed = fixed + (first == 0) * self.problem.hop_buffer
        if rank == 0 and blocks:
            chosen = [b for k, b in enumerate(self.problem.free_blocks) if blocks >> k & 1]
            fixed = fixed + sum(block.size_bytes for block in chosen)
        return fixed

    def _base(self, rank: int, holds_rows: bool) -> Table:
        if rank == 0:
            return self._lead_base
        return self._other_base if holds_rows else self.problem.workspace[False]

    @cached_property
    def _lead_base(self) -> Table:
        """Scratch, hops, and the ends' blocks: as on one device."""
        size = self.problem.layer_bytes
        return need_of(self.problem, self.mode) - (size[None, :] - size[:, None])

    @cached_property
    def _other_base(self) -> Table:
        """Scratch and hops of a rank that holds rows but no blocks."""
        base = self.problem.workspace[False] + 2 * self.problem.hop_buffer
        base[0, :] -= self.problem.hop_buffer
        base[:, self.problem.num_layers] -= self.problem.hop_buffer
        return base

    def may_fit(self, unit: Unit, blocks: int, least_free: int, first: Table, end: Table) -> Bools:
        """True where the ranks' rooms together hold the tiles: necessary, not enough."""
        rooms = [self.room(unit, rank, blocks, first, end) - least_free
                 for rank in range(unit.size)]  # fmt: skip
        whole = self.sizes.whole[end] - self.sizes.whole[first]
        fits: Bools = (np.minimum.reduce(rooms) > 0) & (np.add.reduce(rooms) >= whole)
        return fits

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
    def _before_by_tiles(self) -> dict[int, Table]:
        return {}
