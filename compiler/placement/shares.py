"""How an MLP's tiles are dealt to the ranks of a group, and what each deal costs every layer.

A *deal* is the ranks' runs of tiles, in rank order. Tables over deals are arrays [deals, ...], so
that the best deal of a column is a minimum over their first axis.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations

import numpy as np

from plancc.compiler.cost.comm import hop_ns
from plancc.compiler.cost.compute import Work, layer_parts_ns, mlp_ns
from plancc.compiler.placement.problem import Problem, Table, prefix_sums
from plancc.compiler.placement.units import Unit
from plancc.ir.exchange import Exchange
from plancc.ir.groups import exchange_pairs, partial_buffer_bytes, partial_row_bytes
from plancc.ir.layers import DenseMlp, Layer, num_tiles
from plancc.ir.sizes import hidden_row_bytes, step_rows
from plancc.ir.tiles import MAX_TILES, Span, subtree_roots

Deal = tuple[Span, ...]
MOST_ROOTS = 2 * MAX_TILES.bit_length()  # maximal subtrees in a run of tiles


@cache
def deal_spans(num_ranks: int, tiles: int) -> Table:
    """[deals, ranks, 2] every way to deal tiles in runs, one at least to each rank; ascending."""
    cuts = list(combinations(range(1, tiles), num_ranks - 1))
    inner = np.array(cuts, np.int64).reshape(len(cuts), num_ranks - 1)
    ends = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, tiles)))
    return np.stack([ends[:, :-1], ends[:, 1:]], axis=2)


@cache
def deal_sizes(num_ranks: int, tiles: int) -> Table:
    """[deals, ranks] tiles."""
    spans = deal_spans(num_ranks, tiles)
    return np.asarray(spans[:, :, 1] - spans[:, :, 0])


def deal(num_ranks: int, tiles: int, number: int) -> Deal:
    """The ranks' runs of tiles in one deal."""
    spans = deal_spans(num_ranks, tiles)[number].tolist()
    return tuple((first, end) for first, end in spans)


@cache
def root_counts(num_ranks: int, tiles: int) -> Table:
    """[deals, ranks] partial rows that a rank sends."""
    table = np.zeros((tiles + 1, tiles + 1), np.int64)
    for first, end in combinations(range(tiles + 1), 2):
        table[first, end] = len(subtree_roots(tiles, (first, end)))
    spans = deal_spans(num_ranks, tiles)
    return table[spans[:, :, 0], spans[:, :, 1]]


@dataclass(frozen=True)
class ShareSizes:
    """Bytes of layers in a group, whatever the step."""

    problem: Problem

    @cached_property
    def tiles(self) -> Table:
        """[L] tiles of each layer's MLP; 0 where it cannot be cut."""
        return np.array([num_tiles(layer) for layer in self.problem.model.layers], np.int64)

    @cached_property
    def runs(self) -> Table:
        """[L + 1, L + 1] tiles of every layer of [i, j) where they agree and can be cut; else 0."""
        count = self.problem.num_layers
        table = np.zeros((count + 1, count + 1), np.int64)
        for first in range(count):
            end = first
            while end < count and self.tiles[end] == self.tiles[first] > 0:
                end += 1
            table[first, first + 1 : end + 1] = self.tiles[first]
        return table

    @cached_property
    def uncut(self) -> Table:
        """[L + 1] prefix sums of what every rank has of an MLP beside its tiles."""
        mlps = [layer.mlp for layer in self.problem.model.layers]
        return prefix_sums([mlp.uncut_bytes if isinstance(mlp, DenseMlp) else 0 for mlp in mlps])

    @cached_property
    def whole(self) -> Table:
        """[L + 1] prefix sums of the tiles of all MLPs."""
        mlps = [layer.mlp for layer in self.problem.model.layers]
        return prefix_sums([mlp.weight_bytes if isinstance(mlp, DenseMlp) else 0 for mlp in mlps])

    @cached_property
    def held(self) -> Table:
        """[L + 1] prefix sums of what a rank with the mixer has beside its tiles."""
        return self.problem.layer_bytes - self.whole

    def before(self, tiles: int) -> Table:
        """[tiles + 1, L + 1] bytes of tiles [0, t) of all MLPs before a layer."""
        rows = [_tile_bytes(layer, tiles) for layer in self.problem.model.layers]
        sums = np.cumsum(np.array(rows, np.int64), axis=0)
        return np.concatenate([np.zeros((1, tiles + 1), np.int64), sums]).T

    def least_run(self, tiles: int) -> Table:
        """[tiles + 1, L + 1] bytes that a run of so many tiles has at least, before a layer."""
        rows = [_tile_bytes(layer, tiles) for layer in self.problem.model.layers]
        least = [[min(row[a + n] - row[a] for a in range(tiles + 1 - n)) for n in range(tiles + 1)]
                 for row in rows]  # fmt: skip
        sums = np.cumsum(np.array(least, np.int64), axis=0)
        return np.concatenate([np.zeros((1, tiles + 1), np.int64), sums]).T

    def buffers(self, unit: Unit, tiles: int) -> Table:
        """[deals, ranks] bytes for partial rows."""
        problem = self.problem
        rows = step_rows(problem.ask.slots, problem.ask.prefill_chunk)
        kinds, index = np.unique(root_counts(unit.size, tiles), axis=0, return_inverse=True)
        by_kind = [[partial_buffer_bytes(problem.model, rows, kind, unit.mixer, rank)
                    for rank in range(unit.size)] for kind in kinds.tolist()]  # fmt: skip
        return np.array(by_kind, np.int64)[index.reshape(-1)]


def _tile_bytes(layer: Layer, tiles: int) -> list[int]:
    if num_tiles(layer) != tiles:
        return [0] * (tiles + 1)
    assert isinstance(layer.mlp, DenseMlp)
    return [layer.mlp.share_bytes(0, end) for end in range(tiles + 1)]


class ShareTimes:
    """ns of layers in a group, for one step."""

    def __init__(self, problem: Problem, work: Work) -> None:
        self.problem, self.work = problem, work
        self._mlp: dict[tuple[int, int], Table] = {}
        self._links: dict[tuple[int, int], tuple[int, Table, tuple[str, ...]]] = {}

    @cached_property
    def mixer(self) -> Table:
        """[seats, L] the mixer with the KV and state that it meets."""
        model = self.problem.model
        rows = []
        for device in self.problem.devices:
            known: dict[Layer, int] = {}
            for index, layer in enumerate(model.layers):
                if layer not in known:
                    known[layer] = layer_parts_ns(model, device, index, self.work)[0]
            rows.append([known[layer] for layer in model.layers])
        return np.array(rows, np.int64)

    def mlp(self, seat: int, tiles: int) -> Table:
        """[tiles + 1, tiles + 1, L] ns of tiles [a, b) on a seat."""
        if (seat, tiles) not in self._mlp:
            self._mlp[seat, tiles] = self._mlp_table(seat, tiles)
        return self._mlp[seat, tiles]

    def _mlp_table(self, seat: int, tiles: int) -> Table:
        layers = self.problem.model.layers
        kinds = list(dict.fromkeys(layers))
        tables = [self._kind_table(seat, kind, tiles) for kind in kinds]
        number = {kind: index for index, kind in enumerate(kinds)}
        return np.stack(tables)[[number[layer] for layer in layers]].transpose(1, 2, 0).copy()

    def _kind_table(self, seat: int, layer: Layer, tiles: int) -> Table:
        """Runs of as many bytes take as long."""
        table = np.zeros((tiles + 1, tiles + 1), np.int64)
        if num_tiles(layer) != tiles:
            return table
        assert isinstance(layer.mlp, DenseMlp)
        device, known = self.problem.devices[seat], dict[int, int]()
        sizes = _tile_bytes(layer, tiles)
        for first in range(tiles):
            for end in range(first + 1, tiles + 1):
                size = sizes[end] - sizes[first]
                if size not in known:
                    known[size] = mlp_ns(self.problem.model, device, layer, self.work, (first, end))
                table[first, end] = known[size]
        return table

    def layers(self, unit: Unit, tiles: int) -> Table:
        """[deals, L] ns of each layer on the group, its exchange included."""
        spans = deal_spans(unit.size, tiles)
        shares = [self.mlp(seat, tiles)[spans[:, rank, 0], spans[:, rank, 1]]
                  for rank, seat in enumerate(unit.seats)]  # fmt: skip
        if unit.mixer == "replicated":
            ranks = [share + self.mixer[seat] for share, seat in
                     zip(shares, unit.seats, strict=True)]  # fmt: skip
            compute = self._at_once(unit, np.maximum.reduce(ranks))
        else:
            compute = self._at_once(unit, np.maximum.reduce(shares)) + self.mixer[unit.lead]
        return compute + self.exchange(unit, tiles)[:, None]

    def _at_once(self, unit: Unit, alone: Table) -> Table:
        """ns of what all of the unit compute at once, from what it takes alone."""
        row = self._row(unit) if self.work.prompt is None else None
        return alone if row is None else -(-alone * row.slowdown_milli // 1000)

    def exchange(self, unit: Unit, tiles: int) -> Table:
        """[deals] ns of one exchange (cost/groups.py says of what)."""
        roots = root_counts(unit.size, tiles)
        measured, senders = self._measured(unit), roots[:, int(unit.mixer == "owned") :]
        if measured is not None:
            return np.asarray(measured[senders.max(axis=1)])
        partial = self._together(unit, exchange_pairs(unit.mixer, unit.size), roots)
        if unit.mixer == "replicated":
            return partial
        away = tuple((0, rank) for rank in range(1, unit.size))
        return partial + self._together(unit, away, np.zeros((1, unit.size), np.int64))

    def _measured(self, unit: Unit) -> Table | None:
        """[roots] ns by the topology's own curve, if it has one."""
        row, sizes = self._row(unit), [self._size(count) for count in range(MOST_ROOTS + 1)]
        if row is not None and unit.mixer == "replicated":
            return np.array([row.curve().ns(size) for size in sizes], np.int64)
        if row is not None and row.owned_points:
            return np.array([row.owned_ns(sizes[0], size) for size in sizes], np.int64)
        return None

    def _row(self, unit: Unit) -> Exchange | None:
        return self.problem.topology.exchange([self.problem.seats[s] for s in unit.seats])

    def _size(self, roots: int) -> int:
        """Bytes of so many partial rows; of normed rows where 0."""
        rows, model = self.work.rows, self.problem.model
        return rows * (partial_row_bytes(model, roots) if roots else hidden_row_bytes(model))

    def _together(self, unit: Unit, pairs: tuple[tuple[int, int], ...], roots: Table) -> Table:
        """[deals] transfers that begin together; roots [deals, ranks] are of the sender."""
        waits: dict[object, int] = {}
        rests: dict[object, Table] = {}
        for one, two in pairs:
            wait, by_roots, trunk = self._link(unit.seats[one], unit.seats[two])
            rest = by_roots[roots[:, one]]
            for shared in (one, *trunk):
                waits[shared] = max(waits.get(shared, 0), wait)
                rests[shared] = rests.get(shared, np.int64(0)) + rest
        slowest: Table = np.maximum.reduce([waits[key] + rests[key] for key in waits])
        return slowest

    def _link(self, one: int, two: int) -> tuple[int, Table, tuple[str, ...]]:
        """(ns of a byte, [roots] ns of the rest, the trunk if any)."""
        if (one, two) not in self._links:
            topology, a, b = self.problem.topology, self.problem.seats[one], self.problem.seats[two]
            wait = hop_ns(topology, a, b, 1)
            rests = [hop_ns(topology, a, b, self._size(n)) - wait for n in range(MOST_ROOTS + 1)]
            link = topology.link(a, b)
            trunk = (link.trunk,) if link is not None and link.trunk is not None else ()
            self._links[one, two] = wait, np.array(rests, np.int64), trunk
        return self._links[one, two]
