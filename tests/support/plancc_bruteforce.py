"""Every placement of a small model, one by one: an oracle that shares no code with the solver.

It reads manifest, topology and ask, and does its own arithmetic; only the measured curves are read
through the topology's own methods.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from math import ceil

from plancc.ir.ask import Ask
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Device, Topology

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
TOKEN_BYTES = 64
PAGE = 16


@dataclass(frozen=True)
class Candidate:
    """One whole placement: devices in stage order, first layers of stages, head and block homes."""

    devices: tuple[str, ...]
    cuts: tuple[int, ...]
    head: str
    homes: tuple[int, ...]


@dataclass(frozen=True)
class Judged:
    """A placement that fits: its objective's value, its tightest device's room."""

    candidate: Candidate
    value: int
    room: int

    def order(self) -> tuple[object, ...]:
        """The design's preference among shapes of equal rank, best first."""
        shape = self.candidate
        return (self.value, -self.room, shape.devices, shape.head == "first", shape.cuts,
                shape.homes)  # fmt: skip


class BruteForce:
    def __init__(self, model: ModelShape, topology: Topology, ask: Ask) -> None:
        self.model, self.topology, self.ask = model, topology, ask
        self.item = BYTES[model.dtype]
        self.sizes = {block.name: block for block in model.blocks}
        self.free = [b.name for b in model.blocks
                     if b.name not in ("embed", "head") and self._place(b.name) not in
                     ("first", "last")]  # fmt: skip

    def _place(self, block: str) -> str:
        return self.ask.pin.get(block, self.sizes[block].place)

    def best(self, context: int | None = None) -> tuple[int, Judged] | None:
        """(T*, the preferred shape); None where nothing fits."""
        context = context or self.ask.context or 1
        judged = [found for found in (self._judge(c, context) for c in self._all()) if found]
        if not judged:
            return None
        least = min(found.value for found in judged)
        margin = 0.0 if self.ask.objective == "context" else self.ask.margin
        most = int(least * (1 + Fraction(str(margin))))
        near = [found for found in judged if found.value <= most]
        fewest = min(len(set(found.candidate.devices)) for found in near)
        near = [found for found in near if len(set(found.candidate.devices)) == fewest]
        return least, min(near, key=Judged.order)

    def _all(self) -> Iterator[Candidate]:
        count = len(self.model.layers)
        for devices in self._orders():
            for inner in combinations(range(1, count), len(devices) - 1):
                cuts = (0, *inner, count)
                if self.ask.stage_layers is not None:
                    spans = tuple(b - a for a, b in pairwise(cuts))
                    if spans != self.ask.stage_layers:
                        continue
                for head in self._heads(len(devices)):
                    for homes in product(range(len(devices)), repeat=len(self.free)):
                        yield Candidate(devices, cuts, head, homes)

    def _orders(self) -> Iterator[tuple[str, ...]]:
        asked = self.ask.devices
        names = asked or tuple(device.name for device in self.topology.devices)
        most = min(len(names), len(self.model.layers), self.ask.max_devices or len(names))
        if asked is not None and len(set(asked)) < len(asked):
            yield asked
            return
        for count in range(1, most + 1):
            yield from (combinations if asked else permutations)(names, count)

    def _heads(self, num_stages: int) -> tuple[str, ...]:
        if "head" not in self.sizes or num_stages == 1:
            return ("last",)
        if self.ask.head != "auto":
            return (self.ask.head,)
        return ("last", "first")

    def _judge(self, shape: Candidate, context: int) -> Judged | None:
        if not self._is_legal(shape):
            return None
        room = self._room(shape, context)
        if room < 0:
            return None
        if self.ask.objective == "throughput":
            return Judged(shape, self._round(shape, context), room)
        if self.ask.objective == "prefill":
            return Judged(shape, self._prefill(shape, context), room)
        return Judged(shape, sum(self._parts(shape, 1, context)), room)

    def _is_legal(self, shape: Candidate) -> bool:
        last = len(shape.devices) - 1
        stage_of = {layer: s for s in range(last + 1)
                    for layer in range(shape.cuts[s], shape.cuts[s + 1])}  # fmt: skip
        for index, layer in enumerate(self.model.layers):
            if layer.kv_from is not None and stage_of[index] != stage_of[layer.kv_from]:
                return False
        homes = {"embed": 0, "head": last if shape.head == "last" else 0}
        homes |= dict(zip(self.free, shape.homes, strict=True))
        for name, stage in homes.items():
            if name in self.sizes and self._place(name) not in ("first", "last", "any"):
                if shape.devices[stage] != self._place(name):
                    return False
        return True

    def _room(self, shape: Candidate, context: int) -> int:
        """Free bytes of the tightest device; the bytes of a device add up over its stages."""
        used: dict[str, int] = {}
        for stage, name in enumerate(shape.devices):
            used[name] = used.get(name, 0) + self._stage_bytes(shape, stage, context)
        rooms = []
        for name, size in used.items():
            device = self._device(name)
            rooms.append(device.free_bytes - device.reserve_bytes - device.overhead_bytes - size)
        return min(rooms)

    def _stage_bytes(self, shape: Candidate, stage: int, context: int) -> int:
        last, slots = len(shape.devices) - 1, self.ask.slots
        layers = self.model.layers[shape.cuts[stage] : shape.cuts[stage + 1]]
        total = max((layer.workspace_bytes for layer in layers), default=0)
        for layer in layers:
            total += layer.mixer.weight_bytes + slots * layer.state_bytes_per_slot
            total += layer.mlp.weight_bytes if layer.mlp else 0
            total += self._kv(layer, context)
        total += self._blocks(shape, stage, last)
        rows = max(slots, self.ask.prefill_chunk)
        ends = (stage > 0) + (stage < last)
        if shape.head == "first" and last > 0:
            ends += (stage == 0) + (stage == last)
        return total + ends * 2 * rows * self.model.hidden_size * self.item

    def _kv(self, layer: Layer, context: int) -> int:
        if layer.kv_from is not None or not layer.mixer.kv_bytes_per_token:
            return 0
        rows = context
        if layer.mixer.window:
            rows = min(context, layer.mixer.window + self.ask.prefill_chunk)
        padded = -(-rows // PAGE) * PAGE
        return ((self.ask.slots - 1) * padded + rows) * layer.mixer.kv_bytes_per_token

    def _blocks(self, shape: Candidate, stage: int, last: int) -> int:
        head_stage = last if shape.head == "last" else 0
        total = 0
        for name, block in self.sizes.items():
            whole = block.weight_bytes + block.workspace_bytes
            if name == "head":
                shared = block.tied_to == "embed" and head_stage == 0
                saved = self.sizes["embed"].weight_bytes if shared else 0
                total += (whole - saved) if stage == head_stage else 0
            elif name in self.free:
                total += whole if shape.homes[self.free.index(name)] == stage else 0
            elif name == "embed" or self._place(name) == "first":
                total += whole if stage == 0 else 0
            else:
                total += whole if stage == last else 0
        return total

    def _parts(self, shape: Candidate, rows: int, context: int) -> list[int]:
        """ns of every stage and of every hop of a decode step."""
        parts, last = [], len(shape.devices) - 1
        for stage, name in enumerate(shape.devices):
            device = self._device(name)
            spent = sum(self._layer(device, i, rows, context)
                        for i in range(shape.cuts[stage], shape.cuts[stage + 1]))  # fmt: skip
            spent += self._launch(device, 1) if stage == 0 and "embed" in self.sizes else 0
            head_stage = last if shape.head == "last" else 0
            if "head" in self.sizes and stage == head_stage:
                spent += self._kernel(device, self.sizes["head"].weight_bytes, rows)
                spent += self._launch(device, 2)
            parts.append(spent)
        return parts + self._hops(shape, rows)

    def _hops(self, shape: Candidate, rows: int) -> list[int]:
        size = rows * self.model.hidden_size * self.item
        names = shape.devices
        hops = [self._hop(a, b, size) for a, b in pairwise(names)]
        if len(names) > 1:
            back = size if shape.head == "first" and "head" in self.sizes else TOKEN_BYTES
            hops.append(self._hop(names[-1], names[0], back))
        return hops

    def _hop(self, one: str, two: str, size: int) -> int:
        link = self.topology.link(one, two)
        if link is not None:
            return link.curve().ns(size)
        device = self._device(one)
        return device.read_curve().ns(2 * size) + self._launch(device, 1)

    def _layer(self, device: Device, index: int, rows: int, context: int) -> int:
        """A layer by bytes: one mixer kernel, two of the MLP, the cache, five launches."""
        layer = self.model.layers[index]
        spent = self._kernel(device, layer.mixer.weight_bytes, rows) + self._launch(device, 3)
        if layer.mlp is not None:
            inner = layer.mlp.weight_bytes * (2 / 3)
            spent += self._kernel(device, inner, rows) + self._launch(device, 2)
            spent += self._kernel(device, layer.mlp.weight_bytes - inner, rows)
        source = self.model.layers[layer.kv_from] if layer.kv_from is not None else layer
        keys = min(context, layer.mixer.window or context)
        cached = rows * keys * (source.mixer.kv_bytes_per_token or 0)
        curve = device.read_curve()
        return spent + curve.ns(cached) + curve.ns(2 * rows * layer.state_bytes_per_slot)

    def _prompt_layer(self, device: Device, index: int, rows: int) -> int:
        layer = self.model.layers[index]
        spent = self._kernel(device, layer.mixer.weight_bytes, rows) + self._launch(device, 3)
        if layer.mlp is not None:
            inner = layer.mlp.weight_bytes * (2 / 3)
            spent += self._kernel(device, inner, rows) + self._launch(device, 2)
            spent += self._kernel(device, layer.mlp.weight_bytes - inner, rows)
        return spent

    def _kernel(self, device: Device, size: float, rows: int) -> int:
        flops = 2 * (size / self.item) * rows
        rate = device.tflops.get(self.model.dtype)
        matmul = ceil(flops / (rate * 1e12) * 1e9) if rate else 0
        return max(device.read_curve().ns(size), matmul)

    def _launch(self, device: Device, times: int) -> int:
        return times * ceil(round(device.launch_us * 1000, 3))

    def _round(self, shape: Candidate, context: int) -> int:
        count = len(shape.devices)
        parts = self._parts(shape, -(-self.ask.slots // count), context)
        return max(min(self.ask.slots, count) * max(parts), sum(parts))

    def _prefill(self, shape: Candidate, context: int) -> int:
        prompt = self.ask.prompt or 1
        rows = min(self.ask.prefill_chunk, prompt)
        beats = -(-prompt // rows) + len(shape.devices) - 1
        parts = self._hops(shape, rows)
        for stage, name in enumerate(shape.devices):
            device = self._device(name)
            spent = sum(self._prompt_layer(device, i, rows)
                        for i in range(shape.cuts[stage], shape.cuts[stage + 1]))  # fmt: skip
            parts.append(spent + (self._launch(device, 1) if stage == 0 and
                                  "embed" in self.sizes else 0))  # fmt: skip
        return beats * max(parts)

    def _device(self, name: str) -> Device:
        device = self.topology.device(name)
        assert device is not None
        return device
