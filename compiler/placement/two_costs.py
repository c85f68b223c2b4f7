"""Stages and hops with two costs: those that one cost allows, priced by the other."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from plancc.compiler.placement.chain_choice import Shape
from plancc.compiler.placement.columns import Columns, ColumnSet
from plancc.compiler.placement.problem import INF, Table


def limited(columns: ColumnSet, other: ColumnSet, most: int) -> ColumnSet:
    """`columns` without the stages and hops that cost more than `most` in `other`."""

    def passing(key: tuple[str, int], table: Columns) -> Columns:
        return replace(table, legal=table.legal & (other.by_key[key].cost <= most))

    times = replace(
        columns.times,
        hop=np.where(other.times.hop <= most, columns.times.hop, INF),
        token=np.where(other.times.token <= most, columns.times.token, INF),
    )
    tables = {key: passing(key, table) for key, table in columns.by_key.items()}
    return ColumnSet(columns.problem, times, tables)


def parts_of(columns: ColumnSet, shape: Shape) -> list[int]:
    """What each stage and each hop of a shape costs, the way back included."""
    seats, count = shape.seats, len(shape.seats)
    sets = [sum(1 << k for k, stage in enumerate(shape.block_stages) if stage == number)
            for number in range(count)]  # fmt: skip
    stages = [
        int(columns.by_key[shape.mode, blocks].cost[seat, first, end])
        for blocks, seat, (first, end) in zip(sets, seats, pairwise(shape.cuts), strict=True)
    ]
    hops = [int(columns.times.hop[pair]) for pair in pairwise(seats)]
    home = [int(columns.back(shape.mode)[seats[-1], seats[0]])] if count > 1 else []
    return [*stages, *hops, *home]


def costs_of(columns: ColumnSet) -> Table:
    """Every cost that a worst part can have, in order."""
    tables = [table.priced() for table in columns.by_key.values()]
    hops = [columns.times.hop.ravel(), columns.times.token.ravel()]
    costs = np.unique(np.concatenate([*(table[table < INF] for table in tables), *hops]))
    return costs[costs < INF]
