"""The placement problem as plain integers: what each seat holds and takes for each run of layers.

A *seat* is a device that a stage may sit on; a *column* is (seat, first, end): a stage. Bytes are
exact, times are whole ns, so that an optimum is an equality and not a tolerance.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plancc.ir.ask import Ask
from plancc.ir.buffers import Capacity, Layout, workspace_bytes
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import (
    head_extra_bytes,
    hop_buffer_bytes,
    layer_kv_bytes,
    layer_weight_bytes,
    step_rows,
)
from plancc.ir.topology import Device, Topology

Table = NDArray[np.int64]
INF = np.int64(1 << 60)


@dataclass(frozen=True)
class FreeBlock:
    """A block that may lie on any seat of `seats`."""

    name: str
    size_bytes: int
    seats: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """One model on the seats of a topology, under a filled ask, at one context."""

    model: ModelShape
    topology: Topology
    ask: Ask
    seats: tuple[str, ...]
    in_order: bool  # stages follow the order of seats
    all_seats: bool  # every seat carries a stage
    context: int

    def at_context(self, context: int) -> "Problem":
        return replace(self, context=context)

    def with_slots(self, slots: int) -> "Problem":
        return replace(self, ask=self.ask.model_copy(update={"slots": slots}))

    def with_chunk(self, rows: int) -> "Problem":
        return replace(self, ask=self.ask.model_copy(update={"prefill_chunk": rows}))

    @property
    def num_layers(self) -> int:
        return len(self.model.layers)

    @property
    def num_seats(self) -> int:
        return len(self.seats)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        found = [self.topology.device(name) for name in self.seats]
        return tuple(device for device in found if device is not None)

    @property
    def shares_devices(self) -> bool:
        return len(set(self.seats)) < len(self.seats)

    @cached_property
    def head_modes(self) -> tuple[str, ...]:
        """Where the head may be: 'last' before 'first', as ties are broken."""
        head = self.model.block("head")
        if head is None:
            return ("last",)
        if self.ask.head != "auto":
            return (self.ask.head,)
        return ("last", "first")

    @cached_property
    def layer_bytes(self) -> Table:
        """[L + 1] prefix sums of weights, KV and state."""
        rows = [
            layer_weight_bytes(layer)
            + layer_kv_bytes(
                self.model, layer, context=self.context, slots=self.ask.slots,
                prefill_chunk=self.ask.prefill_chunk, kv_dtype=self.kv_dtype)
            + self.ask.slots * layer.state_bytes_per_slot
            for layer in self.model.layers
        ]  # fmt: skip
        return prefix_sums(rows)

    @property
    def kv_dtype(self) -> str:
        return self.ask.kv_dtype or self.model.dtype

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """How devices of these seats lay out scratch, each way once."""
        return tuple(dict.fromkeys(device.layout for device in self.devices))

    @cached_property
    def workspace(self) -> dict[tuple[Layout, bool], Table]:
        """(layout, has_head) -> [L + 1, L + 1] scratch of a stage of layers [i, j)."""
        return {(layout, has_head): self._workspace(layout, has_head)
                for layout in self.layouts for has_head in (False, True)}  # fmt: skip

    def _workspace(self, layout: Layout, has_head: bool) -> Table:
        """Scratch depends on which kinds of layers a stage has, so each set is sized once."""
        layers = self.model.layers
        capacity = Capacity(self.ask.slots, self.ask.prefill_chunk, self.context)
        kinds = list(dict.fromkeys(layers))
        kind_of = [kinds.index(layer) for layer in layers]
        known: dict[frozenset[int], int] = {}
        table = np.zeros((len(layers) + 1, len(layers) + 1), np.int64)
        for first in range(len(layers)):
            present: frozenset[int] = frozenset()
            for index in range(first, len(layers)):
                if kind_of[index] in present:
                    continue
                present |= {kind_of[index]}
                if present not in known:
                    chosen = tuple(kinds[kind] for kind in sorted(present))
                    known[present] = workspace_bytes(
                        self.model, chosen, capacity, layout=layout, has_head=has_head
                    )
                table[first, index + 1 :] = known[present]
        return table

    def even_scratch(self, seat: int) -> tuple[int, int]:
        """Of any stage on the seat, where all have the same; and what a head adds."""
        layout = self.devices[seat].layout
        scratch, with_head = (int(self.workspace[layout, has][0, 1]) for has in (False, True))
        return scratch, with_head - scratch

    @cached_property
    def cut_is_legal(self) -> NDArray[np.bool_]:
        """[L + 1] may a stage begin here? Never between a layer and the KV that it reads."""
        legal = np.ones(self.num_layers + 1, bool)
        for index, layer in enumerate(self.model.layers):
            if layer.kv_from is not None:
                legal[layer.kv_from + 1 : index + 1] = False
        return legal

    @cached_property
    def hop_buffer(self) -> int:
        return hop_buffer_bytes(self.model, step_rows(self.ask.slots, self.ask.prefill_chunk))

    @cached_property
    def budgets(self) -> Table:
        """[seats] free - reserve - overhead."""
        taken = self.topology.opened_bytes
        sizes = [device.budget_bytes - taken(device, self.ask.workers) for device in self.devices]
        return np.array(sizes, np.int64)

    def block_bytes(self, name: str, *, beside_embed: bool = False) -> int:
        block = self.model.block(name)
        if block is None:
            return 0
        embed = self.model.block("embed")
        return head_extra_bytes(block, embed) if beside_embed else block.resident_bytes

    @cached_property
    def places(self) -> dict[str, str]:
        """Block -> first | last | any | device, pins applied; the head goes by its mode."""
        return {block.name: self.ask.pin.get(block.name, block.place)
                for block in self.model.blocks}  # fmt: skip

    def end_bytes(self, place: str) -> int:
        """Blocks, other than head, that lie with the first (or the last) stage."""
        names = [name for name, where in self.places.items() if name != "head"
                 and (where == place or (name == "embed" and place == "first"))]  # fmt: skip
        return sum(self.block_bytes(name) for name in names)

    @cached_property
    def free_blocks(self) -> tuple[FreeBlock, ...]:
        blocks = []
        for name, place in self.places.items():
            if name in ("embed", "head") or place in ("first", "last"):
                continue
            pinned = tuple(i for i, seat in enumerate(self.seats) if seat == place)
            seats = tuple(range(self.num_seats)) if place == "any" else pinned
            blocks.append(FreeBlock(name, self.block_bytes(name), seats))
        return tuple(blocks)

    def end_seats(self, block: str) -> frozenset[int]:
        """Seats that may hold embed or head, by pin or by a place that names a device."""
        place = self.places.get(block, "any")
        every = frozenset(range(self.num_seats))
        if place in ("first", "last", "any"):
            return every
        return frozenset(i for i in every if self.seats[i] == place)

    @cached_property
    def seat_classes(self) -> tuple[int, ...]:
        """Seats that may be exchanged share a number: same device numbers, same links, no pins."""
        classes: list[int] = []
        for seat in range(self.num_seats):
            same = [classes[o] for o in range(seat) if self._alike(o, seat)]
            classes.append(same[0] if same else seat)
        return tuple(classes)

    def _alike(self, one: int, two: int) -> bool:
        if self.in_order or self.shares_devices:
            return False
        pinned = set(self.places.values())
        if {self.seats[one], self.seats[two]} & pinned:
            return False
        blank = {"name": "", "uuid": None}
        a, b = (self.devices[seat].model_copy(update=blank) for seat in (one, two))
        return a == b and self._links_alike(one, two) and self._exchanges_alike(one, two)

    def _links_alike(self, one: int, two: int) -> bool:
        swap = {one: two, two: one}
        names = range(self.num_seats)
        return all(
            self._link_key(a, b) == self._link_key(swap.get(a, a), swap.get(b, b))
            for a in names for b in names if a != b and {a, b} & {one, two}
        )  # fmt: skip

    def _link_key(self, one: int, two: int) -> object:
        link = self.topology.link(self.seats[one], self.seats[two])
        return link and (link.latency_us, link.bandwidth_gb_s, link.points, link.trunk)

    def _exchanges_alike(self, one: int, two: int) -> bool:
        """Every measured exchange has a twin in which the two are exchanged."""
        names = {self.seats[one]: self.seats[two], self.seats[two]: self.seats[one]}
        for row in self.topology.exchanges:
            twin = self.topology.exchange([names.get(name, name) for name in row.group])
            if twin is None or twin.model_copy(update={"group": row.group}) != row:
                return False
        return True


def prefix_sums(rows: list[int]) -> Table:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(rows, np.int64))])
