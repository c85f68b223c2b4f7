"""Bytes of a rank of a stage for the brute force, column by column of the ledger."""

from functools import cache
from typing import NamedTuple

from plancc.ir.ask import Ask
from plancc.ir.buffers import Capacity, Layout, workspace_bytes
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.groups import Mixer, exchange_buffer_bytes, hop_buffer_ends
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span
from plancc.ir.topology import Topology

PAGE = 16


class Group(NamedTuple):
    """A stage's devices in rank order; one device is a group of its own (`single`)."""

    devices: tuple[str, ...]
    mixer: Mixer


class Role(NamedTuple):
    """What a stage has to do besides its layers. Blocks are names, all but embed and head."""

    stage: int
    num_stages: int
    has_head: bool
    head_first: bool
    blocks: tuple[str, ...]


class Bytes:
    def __init__(self, model: ModelShape, topology: Topology, ask: Ask, context: int) -> None:
        self.model, self.topology, self.ask, self.context = model, topology, ask, context
        self.devices = {device.name: device for device in topology.devices}
        self.step_rows = max(ask.slots, ask.prefill_chunk)
        for name in ("_weights", "_kept", "_scratch", "_blocks", "_buffers"):
            setattr(self, name, cache(getattr(self, name)))

    def columns(
        self, group: Group, tiles: tuple[Span, ...], layers: Span, role: Role, rank: int
    ) -> tuple[int, int, int, int, int, int]:
        """weights, kv, state, blocks, hop buffers and workspace of one rank."""
        holds = rank == 0 or group.mixer != "owned"
        share = None if group.mixer == "single" else tiles[rank]
        weights, mixers = self._weights(share, *layers)
        kv, state = self._kept(*layers) if holds else (0, 0)
        return (
            weights - (0 if holds else mixers), kv, state,
            self._blocks(role) if rank == 0 else 0,
            self._buffers(group, tiles, role, rank),
            self._scratch(*layers, self._layout(group.devices[rank]), role.has_head and rank == 0),
        )  # fmt: skip

    def budget(self, name: str) -> int:
        """Bytes for columns: what is free, less reserve and overhead."""
        device = self.devices[name]
        return device.free_bytes - device.reserve_bytes - device.overhead_bytes

    def _weights(self, share: Span | None, first: int, end: int) -> tuple[int, int]:
        """(whole weights, of which mixers)."""
        total = mixers = 0
        for layer in self.model.layers[first:end]:
            mixers += layer.mixer.weight_bytes
            if share is None or not isinstance(layer.mlp, DenseMlp):
                total += layer.weight_bytes
            else:
                total += layer.mixer.weight_bytes + layer.mlp.uncut_bytes
                total += layer.mlp.share_bytes(*share)
        return total, mixers

    def _kept(self, first: int, end: int) -> tuple[int, int]:
        layers = self.model.layers[first:end]
        kv = 0
        for layer in layers:
            if layer.kv_from is None:
                rows = self.context
                if layer.mixer.window:
                    rows = min(rows, layer.mixer.window + self.ask.prefill_chunk)
                pages = -(-rows // PAGE) * PAGE
                kv += ((self.ask.slots - 1) * pages + rows) * self.kv_row(layer)
        return kv, self.ask.slots * sum(layer.state_bytes_per_slot for layer in layers)

    def kv_row(self, layer: Layer) -> int:
        mixer = layer.mixer
        width = mixer.kv_width()
        if width is None:
            return mixer.kv_bytes_per_token or 0
        return width * ITEMSIZE[self.ask.kv_dtype or self.model.dtype]

    def _blocks(self, role: Role) -> int:
        names = [*role.blocks, *(["head"] if role.has_head else [])]
        names += ["embed"] if role.stage == 0 else []
        blocks = {name: block for name in names if (block := self.model.block(name)) is not None}
        total = sum(block.resident_bytes for block in blocks.values())
        head, embed = blocks.get("head"), blocks.get("embed")
        if head is not None and embed is not None and head.tied_to == "embed":
            total -= min(head.weight_bytes, embed.weight_bytes)
        return total

    def _buffers(self, group: Group, tiles: tuple[Span, ...], role: Role, rank: int) -> int:
        size = 2 * self.step_rows * self.model.hidden_size * ITEMSIZE[self.model.dtype]
        ends = hop_buffer_ends(
            group.mixer, len(group.devices), rank, stage=role.stage, num_stages=role.num_stages,
            head_first=role.head_first,
        )  # fmt: skip
        if group.mixer == "single":
            return ends * size
        kept = exchange_buffer_bytes(self.model, self.step_rows, tiles, group.mixer, rank)
        return ends * size + kept

    def _layout(self, name: str) -> Layout:
        """As said of the device; else only processors go block by block."""
        device = self.devices[name]
        if device.scratch is not None:
            return device.scratch
        return "block" if device.kind == "cpu" else "chunk"

    def _scratch(self, first: int, end: int, layout: Layout, has_head: bool) -> int:
        capacity = Capacity(self.ask.slots, self.ask.prefill_chunk, self.context)
        return workspace_bytes(
            self.model, self.model.layers[first:end], capacity, layout=layout, has_head=has_head
        )
