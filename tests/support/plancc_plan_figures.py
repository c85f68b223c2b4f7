"""What the compiler predicts of a shape, beside what was measured; and what no shape can beat."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plancc_card_shapes import Shape
from plancc_group_plans import PROOF

from plancc.compiler.cost.groups import Group, exchange_ns
from plancc.compiler.cost.predict import predict
from plancc.compiler.placement.placement import PlacedStage, Placement
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan, Transport
from plancc.ir.sizes import kv_bytes_per_token
from plancc.ir.topology import Topology

STEP, PREFILL = "step", "prefill"
OBJECTIVE_OF: Mapping[str, Literal["latency", "prefill"]] = {STEP: "latency", PREFILL: "prefill"}
_UNITS = {STEP: "ms", PREFILL: "ms"}
_LEFT = (0, 1, 4, 7)


@dataclass(frozen=True)
class Figure:
    """One number, in us, after a prompt of `after` tokens in chunks of `chunk`. `what`: step,
    prefill, or of a stage hop<i> and exchange<i> (of one layer). None: not predicted."""

    shape: str
    transport: str
    chunk: int
    after: int
    what: str
    predicted: float | None
    measured: float

    @property
    def off_percent(self) -> float | None:
        """By how much the measured one is larger."""
        return (self.measured / self.predicted - 1) * 100 if self.predicted else None

    @property
    def question(self) -> tuple[str, int, int, str]:
        return self.transport, self.chunk, self.after, self.what

    def cells(self) -> tuple[str, ...]:
        unit = _UNITS.get(self.what, "us")
        scale = 1e3 if unit == "ms" else 1.0
        predicted = "" if self.predicted is None else f"{self.predicted / scale:.2f}"
        off = "" if self.off_percent is None else f"{self.off_percent:+.1f}"
        return (self.shape, self.transport, str(self.chunk), str(self.after), self.what, predicted,
                f"{self.measured / scale:.2f}", unit, off)  # fmt: skip


def topology_for(
    transport: Transport, num_cards: int, topologies: Iterable[Topology]
) -> Topology | None:
    """The first whose links between its cards are all of that transport; any, for one card."""
    for topology in topologies:
        is_alike = all(link.mode == transport for link in topology.links)
        if len(topology.devices) >= num_cards and (num_cards == 1 or is_alike):
            return topology
    return None


def predicted_us(
    plan: Plan, topology: Topology, cards: Sequence[int], *, prompt: int, context: int
) -> dict[str, float]:
    """By figure, the compiler's own model of the plan's shape, its i-th device being device
    cards[i] of the topology; a step attends to `context` tokens."""
    names = {device.name: topology.devices[card].name
             for device, card in zip(plan.devices, cards, strict=True)}  # fmt: skip
    stages = tuple(
        PlacedStage(item.layers, tuple(names[rank.device] for rank in item.ranks),
                    tuple(rank.mlp_tiles for rank in item.ranks), item.mixer, item.blocks)
        for item in plan.stages
    )  # fmt: skip
    ask = plan.ask.model_copy(update={"prompt": prompt, "context": context})
    found = predict(plan.model, topology, ask, Placement(stages, context, PROOF))
    times = {STEP: found.decode.step_ns}
    if found.prefill is not None:
        times[PREFILL] = found.prefill.total_ns
    for number, (item, time) in enumerate(zip(stages, found.decode.stages, strict=True)):
        times[f"hop{number}"] = time.hop_ns
        if item.mixer != "single":
            devices = tuple(_device(topology, name) for name in item.devices)
            group = Group(devices, item.mixer)
            times[f"exchange{number}"] = exchange_ns(plan.model, topology, group, item.tiles, 1)
    return {what: ns / 1e3 for what, ns in times.items()}


def _device(topology: Topology, name: str) -> Any:
    device = topology.device(name)
    assert device is not None
    return device


def figures(
    shape: str, transport: str, chunk: int, after: int, measured: Mapping[str, float],
    predicted: Mapping[str, float],
) -> list[Figure]:  # fmt: skip
    return [Figure(shape, transport, chunk, after, what, predicted.get(what), us)
            for what, us in measured.items()]  # fmt: skip


def mlp_share(model: ModelShape, context: int) -> float:
    """Of the bytes that a decode step reads: weights of layers and head, and KV."""
    head = model.block("head")
    mlp = sum(layer.mlp.weight_bytes for layer in model.layers if layer.mlp)
    total = (head.weight_bytes if head else 0) + sum(
        layer.weight_bytes
        + min(context, layer.mixer.window or context)
        * kv_bytes_per_token(model, layer, model.dtype)
        for layer in model.layers
    )
    return mlp / total


def tp_bound(share: float, num_ranks: int) -> float:
    """How many times faster a step can be at best, its MLPs cut and nothing else."""
    return 1 / (1 - share * (1 - 1 / num_ranks))


def prefill_bound(chunks: int, num_stages: int) -> float:
    """How many times faster a prompt can be at best, each chunk going through all stages."""
    return num_stages * chunks / (chunks + num_stages - 1)


def bounds(shapes: Sequence[Shape], model: ModelShape, rows: Sequence[Figure]) -> list[str]:
    """A line for each group's step and each pipeline's prompt: what it gained over the base, which
    is one device, else the first pipeline, and the most that it could gain. For a pipeline's step,
    which can gain nothing, how far it is off."""
    lines = []
    by_word = {shape.word: shape for shape in shapes}
    for row in rows:
        shape = by_word[row.shape]
        base = _base(row, shapes, rows)
        if base is None or base.shape == row.shape:
            continue
        gained = base.measured / row.measured
        where = f"{row.shape} {row.transport}, {row.what} after {row.after}"
        if row.what == STEP and shape.num_ranks == 1:
            lines.append(f"{where}: {100 / gained - 100:+.1f} % of {base.shape}")
        if row.what == STEP and shape.num_ranks > 1:
            share = mlp_share(model, row.after)
            bound = tp_bound(share, shape.num_ranks)
            lines.append(f"{where}: {gained:.2f} times {base.shape}; at most {bound:.2f} "
                         f"(MLPs are {100 * share:.1f} % of the bytes)")  # fmt: skip
        if row.what == PREFILL and shape.num_ranks == 1 and base.shape == "1":
            chunks, n = -(-row.after // row.chunk), len(shape.stages)
            lines.append(f"{where}: {gained:.2f} times {base.shape}; at most "
                         f"{prefill_bound(chunks, n):.2f} ({chunks} chunks, {n} stages: "
                         f"{chunks / (chunks + n - 1):.3f} of {n})")  # fmt: skip
    return lines


def _base(row: Figure, shapes: Sequence[Shape], rows: Sequence[Figure]) -> Figure | None:
    """The same question, asked of one device, else of the first pipeline; by any transport where
    nothing is carried."""
    single = [shape.word for shape in shapes if shape.num_ranks == 1]
    for word in sorted(single, key=lambda word: word != "1"):
        for other in rows:
            is_alike = other.question == row.question or (
                word == "1" and other.question[1:] == row.question[1:]
            )
            if other.shape == word and is_alike:
                return other
    return None


def verdicts(pick: Mapping[tuple[str, str], str], rows: Sequence[Figure]) -> list[str]:
    """For each question about a step or a prompt: the fastest as predicted and as measured, and how
    far the compiler's pick is behind. `pick`: a shape's word, by transport and objective."""
    lines = []
    for question in dict.fromkeys(row.question for row in rows if row.what in OBJECTIVE_OF):
        alike = [row for row in rows if row.question == question]
        transport, chunk, after, what = question
        fastest = min(alike, key=lambda row: row.measured)
        line = f"{what} {transport}, after {after} by {chunk}: fastest {fastest.shape}"
        if all(row.predicted for row in alike):
            line += f", predicted {min(alike, key=lambda row: row.predicted or 0).shape}"
        word = pick.get((transport, OBJECTIVE_OF[what]))
        for row in alike:
            if row.shape == word:
                behind = (row.measured / fastest.measured - 1) * 100
                line += f"; the compiler picks {word}, {behind:+.1f} %"
        lines.append(line)
    return lines


def table(rows: Sequence[Figure]) -> str:
    """A line a figure, in columns."""
    head = ("shape", "transport", "chunk", "after", "what", "predicted", "measured", "", "off %")
    cells = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(f"{text:{width}}" if i in _LEFT else f"{text:>{width}}"
                  for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in cells
    )  # fmt: skip
