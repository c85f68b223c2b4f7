"""Columns: what a stage of layers [i, j) on a seat needs and costs, in each role it may have.

A stage is the only one, the first, the last, or between. The head lies in the last stage, or in the
first and then hidden rows hop back there. Whether a column fits is a matter of its own seat alone.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from plancc.compiler.placement.problem import INF, Problem, Table
from plancc.compiler.placement.times import Times
from plancc.ir.buffers import Layout


@dataclass(frozen=True)
class Columns:
    """Tables [seats, L + 1, L + 1] for one head mode and one set of free blocks on the stage.

    `free` is what the seat's device has left (negative: does not fit), `cost` the ns of the stage
    itself; both only mean something where `legal`.
    """

    legal: np.ndarray
    free: Table
    cost: Table

    def priced(self, *, least_free: int = 0, most: int | None = None) -> Table:
        """cost where a column is legal, leaves `least_free` and costs at most `most`; else INF."""
        allowed = self.legal & (self.free >= least_free)
        if most is not None:
            allowed &= self.cost <= most
        return np.where(allowed, self.cost, INF)


@dataclass(frozen=True)
class ColumnSet:
    """Columns of every head mode and every set of free blocks (bit k: block k)."""

    problem: Problem
    times: Times
    by_key: dict[tuple[str, int], Columns]

    def back(self, mode: str) -> Table:
        """[last seat, first seat] what is sent back at the end of a step."""
        return self.times.hop if mode == "first" else self.times.token


def column_set(problem: Problem, times: Times) -> ColumnSet:
    num_blocks = len(problem.free_blocks)
    keys = [(mode, blocks) for mode in problem.head_modes for blocks in range(1 << num_blocks)]
    return ColumnSet(problem, times, {key: _columns(problem, times, *key) for key in keys})


def _columns(problem: Problem, times: Times, mode: str, blocks: int) -> Columns:
    need = {layout: need_of(problem, mode, layout) for layout in problem.layouts}
    free = problem.budgets[:, None, None] - np.stack([need[d.layout] for d in problem.devices])
    free -= _block_bytes(problem, blocks)
    return Columns(_legal(problem, mode, blocks), free, _cost(problem, times, mode))


def need_of(problem: Problem, mode: str, layout: Layout) -> Table:
    """[L + 1, L + 1] bytes of a stage on a device of a layout, without the device's overhead."""
    size, last = problem.layer_bytes, problem.num_layers
    without_head, with_head = (problem.workspace[layout, has_head] for has_head in (False, True))
    need = size[None, :] - size[:, None] + without_head
    need += 2 * problem.hop_buffer
    need[0, :] += problem.end_bytes("first") - problem.hop_buffer
    need[:, last] += problem.end_bytes("last") - problem.hop_buffer
    scratch = with_head - without_head
    beside = problem.block_bytes("head", beside_embed=True)
    has_head = problem.model.block("head") is not None
    only = need[0, last] + (beside + scratch[0, last] if has_head else 0)
    if has_head and mode == "first":
        need[0, :] += beside + scratch[0, :] + problem.hop_buffer
        need[:, last] += problem.hop_buffer
    elif has_head:
        need[:, last] += problem.block_bytes("head") + scratch[:, last]
    need[0, last] = only
    return need


def _block_bytes(problem: Problem, blocks: int) -> int:
    chosen = [b for k, b in enumerate(problem.free_blocks) if blocks >> k & 1]
    return sum(block.size_bytes for block in chosen)


def _legal(problem: Problem, mode: str, blocks: int) -> np.ndarray:
    """Runs of at least one layer, between legal cuts, where pins allow them."""
    count, last = problem.num_layers, problem.num_layers
    one = np.triu(np.ones((count + 1, count + 1), bool), 1)
    one &= problem.cut_is_legal[:, None] & problem.cut_is_legal[None, :]
    one &= _asked_runs(problem)
    legal = np.repeat(one[None], problem.num_seats, axis=0)
    embed, head = problem.end_seats("embed"), problem.end_seats("head")
    for seat in range(problem.num_seats):
        if seat not in embed or (mode == "first" and seat not in head):
            legal[seat, 0, :] = False
        if mode == "last" and seat not in head:
            legal[seat, :, last] = False
        for k, block in enumerate(problem.free_blocks):
            if blocks >> k & 1 and seat not in block.seats:
                legal[seat] = False
    return legal


def _asked_runs(problem: Problem) -> np.ndarray:
    """All runs, or just those of --stage-layers."""
    count, asked = problem.num_layers, problem.ask.stage_layers
    if asked is None:
        return np.ones((count + 1, count + 1), bool)
    runs = np.zeros((count + 1, count + 1), bool)
    first = 0
    for layers in asked:
        runs[first, first + layers] = True
        first += layers
    return runs


def _cost(problem: Problem, times: Times, mode: str) -> Table:
    """[seats, L + 1, L + 1] ns of the stage: its layers, the embedding, the head."""
    last = problem.num_layers
    cost = times.layers[:, None, :] - times.layers[:, :, None]
    cost[:, 0, :] += times.embed[:, None]
    if mode == "first":
        cost[:, 0, :] += times.head[:, None]
    else:
        cost[:, :, last] += times.head[:, None]
    return cost


def subsets(bits: int) -> list[int]:
    """Every set of bits inside `bits`, the empty one first, in ascending order."""
    places = [k for k in range(bits.bit_length()) if bits >> k & 1]
    sets = [sum(1 << k for k in chosen) for n in range(len(places) + 1)
            for chosen in combinations(places, n)]  # fmt: skip
    return sorted(sets)
