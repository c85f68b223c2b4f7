"""Times of a stage for the brute force: its own arithmetic, from the design's formulas.

From ir/ come what a kernel reads, who sends to whom, and the sizes of buffers: the words that both
sides share. Nothing comes from the compiler.
"""

from fractions import Fraction
from functools import cache
from math import ceil

from plancc_bruteforce_bytes import Bytes, Group, Role

from plancc.ir.ask import Ask
from plancc.ir.curve import Curve
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.groups import exchange_pairs, hop_pairs, spread_pairs
from plancc.ir.kernel_spec import mixer_reads, mlp_reads
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import Span, subtree_roots
from plancc.ir.topology import Topology

TOKEN_BYTES = 64
Transfer = tuple[str, str, int]


def turns(lineup: tuple[Group, ...], stages: list[int]) -> list[int]:
    """What each device does for one beat, one stage after another where it has several. Of the
    first stages alone it is what they add to it."""
    found: list[int] = []
    for name in {name for group in lineup for name in group.devices}:
        mine = [time for group, time in zip(lineup, stages, strict=False) if name in group.devices]
        found.append(sum(mine))
    return found


def num_beats(ask: Ask, lineup: tuple[Group, ...]) -> int:
    """A beat for each chunk, and one more for each device that the last chunk still has to see."""
    prompt = ask.prompt or 1
    rows = min(ask.prefill_chunk, prompt)
    chunks = (prompt + rows - 1) // rows
    return chunks - 1 + len({group.devices[0] for group in lineup})


class Sums(Bytes):
    """All sums of one question for steps of `rows` rows; a prompt's step if `is_prompt`."""

    def __init__(
        self, model: ModelShape, topology: Topology, ask: Ask, context: int, rows: int,
        is_prompt: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(model, topology, ask, context)
        self.rows, self.is_prompt = rows, is_prompt
        self.curves = {name: device.read_curve() for name, device in self.devices.items()}
        self.row_bytes = rows * model.hidden_size * ITEMSIZE[model.dtype]
        for name in ("_mixer", "_mlp", "_layer", "_span", "exchange", "hop", "link", "read"):
            setattr(self, name, cache(getattr(self, name)))

    def compute(self, group: Group, tiles: tuple[Span, ...], layers: Span, role: Role) -> int:
        """Layers, and what the lead does at the ends of the model."""
        time, lead = self._span(group, tiles, *layers), group.devices[0]
        if role.stage == 0 and self.model.block("embed") is not None:
            time += self._launch(lead, 1)
        head = self.model.block("head")
        if role.has_head and head is not None and not self.is_prompt:
            time += self._kernel(lead, head.weight_bytes, None) + self._launch(lead, 2)
        return time

    def exchanged(self, group: Group, tiles: tuple[Span, ...], layers: Span, role: Role) -> int:
        """The exchanges of all layers, and the first rows of a replicated first stage."""
        if group.mixer == "single":
            return 0
        time = (layers[1] - layers[0]) * self.exchange(group, tiles)
        if role.stage == 0:
            pairs = spread_pairs(group.mixer, len(group.devices))
            time += self._named(group, group, pairs, self.row_bytes)
        return time

    def exchange(self, group: Group, tiles: tuple[Span, ...]) -> int:
        """What follows (and in an owned group goes before) one layer's MLP."""
        names, fp32 = group.devices, 4 * self.model.hidden_size * self.rows
        parts = [fp32 * len(subtree_roots(tiles[-1][1], run)) for run in tiles]
        measured = self.topology.exchange(names)
        if group.mixer == "replicated" and measured is not None:
            return measured.curve().ns(max(parts))
        if group.mixer == "owned" and measured is not None and measured.owned_points:
            round_trip = Curve(measured.owned_points)
            return (round_trip.ns(self.row_bytes) + round_trip.ns(max(parts[1:])) + 1) // 2
        pairs = exchange_pairs(group.mixer, len(names))
        time = self.together(tuple((names[a], names[b], parts[a]) for a, b in pairs))
        if group.mixer == "owned":
            time += self.together(tuple((names[0], name, self.row_bytes) for name in names[1:]))
        return time

    def hop(self, sender: Group, target: Group) -> int:
        pairs = hop_pairs((sender.mixer, len(sender.devices)), (target.mixer, len(target.devices)))
        return self._named(sender, target, pairs, self.row_bytes)

    def back(self, last: Group, first: Group, head_first: bool) -> int:
        is_row = head_first and self.model.block("head") is not None
        size = self.row_bytes if is_row else TOKEN_BYTES
        return self.link(last.devices[0], first.devices[0], size)

    def together(self, transfers: tuple[Transfer, ...]) -> int:
        """Transfers at the same time: of each sender and each trunk, bodies add up."""
        if len(transfers) < 2:
            return sum(self.link(*transfer) for transfer in transfers)
        worst = 0
        rows = [(a, self._trunk(a, b), self.link(a, b, 1), self.link(a, b, size))
                for a, b, size in transfers]  # fmt: skip
        for column in (0, 1):
            for resource in {row[column] for row in rows} - {None}:
                mine = [row for row in rows if row[column] == resource]
                bodies = sum(whole - base for *_, base, whole in mine)
                worst = max(worst, bodies + max(base for *_, base, _ in mine))
        return worst

    def link(self, one: str, two: str, size: int) -> int:
        row = self.topology.link(one, two)
        if row is not None:
            return row.curve().ns(size)
        return self.read(one, 2 * size) + self._launch(one, 2)

    def _named(
        self, sender: Group, target: Group, pairs: tuple[tuple[int, int], ...], size: int
    ) -> int:
        return self.together(tuple((sender.devices[a], target.devices[b], size) for a, b in pairs))

    def _trunk(self, one: str, two: str) -> str | None:
        row = self.topology.link(one, two)
        return row.trunk if row is not None else None

    def _span(self, group: Group, tiles: tuple[Span, ...], first: int, end: int) -> int:
        if first == end:
            return 0
        return self._span(group, tiles, first, end - 1) + self._layer(group, tiles, end - 1)

    def _layer(self, group: Group, tiles: tuple[Span, ...], index: int) -> int:
        names = group.devices
        if group.mixer == "single":
            return self._mixer(names[0], index) + self._mlp(names[0], index, None)
        shares = [self._mlp(name, index, run) for name, run in zip(names, tiles, strict=True)]
        if group.mixer == "owned":
            return self._mixer(names[0], index) + self._slowed(names, max(shares))
        ranks = [self._mixer(name, index) + share
                 for name, share in zip(names, shares, strict=True)]  # fmt: skip
        return self._slowed(names, max(ranks))

    def _slowed(self, names: tuple[str, ...], time: int) -> int:
        """Decode rows while all of a group compute."""
        row = self.topology.exchange(names)
        if row is None or self.is_prompt:
            return time
        return ceil(time * Fraction(round(row.slowdown * 1000), 1000))

    def _mixer(self, name: str, index: int) -> int:
        """Three launches, the mixer's matrices, and the cache or the attention of a prompt."""
        layer = self.model.layers[index]
        time = self._launch(name, 3)
        time += sum(self._kernel(name, size, index) for size in mixer_reads(layer))
        mixer = layer.mixer
        if not self.is_prompt:
            source = layer if layer.kv_from is None else self.model.layers[layer.kv_from]
            keys = min(self.context, mixer.window or self.context)
            time += self.read(name, self.rows * keys * self.kv_row(source))
            return time + self.read(name, 2 * self.rows * layer.state_bytes_per_slot)
        rates = [self._rate(name), self.devices[name].attention_tflops]
        if mixer.num_heads and mixer.head_dim and any(rates):
            rate = min(filter(None, rates))
            prompt = self.ask.prompt or 1
            keys = min(mixer.window or prompt, (prompt + 1) / 2)
            flops = 4 * self.rows * mixer.num_heads * mixer.head_dim * keys
            time += ceil(flops / (rate * 1e12) * 1e9)
        return time

    def _mlp(self, name: str, index: int, share: Span | None) -> int:
        """Two launches and the share's matrices; the sum over the tree is a launch more."""
        layer = self.model.layers[index]
        if layer.mlp is None:
            return 0
        launches = 2 if share is None else 3
        sizes = mlp_reads(layer, self.rows, share)
        return self._launch(name, launches) + sum(self._kernel(name, s, index) for s in sizes)

    def _kernel(self, name: str, size: float, index: int | None) -> int:
        read, rate = self.read(name, size), self._rate(name)
        if rate is None:
            return read
        rows = self._filled(name)
        flops = 2 * (size / ITEMSIZE[self.model.dtype]) * rows
        layer = self.model.layers[index] if index is not None else None
        if layer is not None and layer.flops_per_token is not None:
            whole = sum(mixer_reads(layer)) + sum(mlp_reads(layer, self.rows))
            if whole > 0:
                flops = layer.flops_per_token * rows * size / whole
        return max(read, ceil(flops / (rate * 1e12) * 1e9))

    def _rate(self, name: str) -> float | None:
        """TFLOP/s at these rows; None below the first point, where reading is all there is."""
        device = self.devices[name]
        points, rows = device.points_of(self.model.dtype), self._filled(name)
        if points and rows < points[0][0]:
            return None
        return device.matmul_tflops(rows, self.model.dtype)

    def _filled(self, name: str) -> int:
        """A prompt's rows, and those that fill the last block of the device up."""
        block = self.devices[name].row_block
        return self.rows if block is None or not self.is_prompt else ceil(self.rows / block) * block

    def _launch(self, name: str, times: int) -> int:
        return times * ceil(round(self.devices[name].launch_us * 1000, 3))

    def read(self, name: str, size: float) -> int:
        return self.curves[name].ns(size)
