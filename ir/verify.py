"""What every graph must keep between passes. Each rule has a name; all problems are told at once.

Some rules only bite once a graph is placed (ops have seats) or lowered (it holds sends).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from plancc.ir.graph import Graph
from plancc.ir.op import (
    ATTRS,
    AddAttrs,
    ExchangeAttrs,
    MixerAttrs,
    MlpAttrs,
    NormAttrs,
    Op,
    OpKind,
    TransferAttrs,
)

Problems = Iterator[str]

_INPUTS: dict[OpKind, tuple[int, int]] = {
    OpKind.EMBED: (0, 1),  # the step's token ids, where they come from another rank
    OpKind.NORM: (1, 1),
    OpKind.MIXER: (1, 1),
    OpKind.MLP: (1, 1),
    OpKind.ADD: (2, 2),
    OpKind.HEAD: (1, 1),
    OpKind.SAMPLE: (1, 1),
    OpKind.SEND: (0, 1),  # what a step is comes from outside the graph
    OpKind.RECV: (1, 1),
    OpKind.EXCHANGE: (1, 1),
}
_SAME_TYPE = frozenset(
    {OpKind.NORM, OpKind.MIXER, OpKind.MLP, OpKind.ADD, OpKind.RECV, OpKind.EXCHANGE}
)


class InvalidGraph(AssertionError):
    """A pass broke a rule: a bug of ours, never a user's mistake. Holds every problem."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def verify(graph: Graph) -> None:
    """Raise InvalidGraph with every broken rule, each as `rule: %op: what`."""
    problems = tuple(f"{rule.__name__}: {problem}" for rule in RULES for problem in rule(graph))
    if problems:
        raise InvalidGraph(problems)


def names_are_single(graph: Graph) -> Problems:
    for name, times in Counter(op.name for op in graph.ops).items():
        if times > 1:
            yield f"%{name} is defined {times} times"


def inputs_are_defined_before_use(graph: Graph) -> Problems:
    seen: set[str] = set()
    for op in graph.ops:
        for name in op.inputs:
            if name not in seen:
                yield f"%{op.name} reads %{name} before it is defined"
        seen.add(op.name)


def outputs_are_defined(graph: Graph) -> Problems:
    if not graph.outputs:
        yield "the graph returns nothing"
    for name in graph.outputs:
        if name not in graph.by_name:
            yield f"returns %{name}, which is not defined"


def attributes_are_of_the_kind(graph: Graph) -> Problems:
    for op in graph.ops:
        if type(op.attrs) is not ATTRS[op.kind]:
            yield f"%{op.name}: {op.kind} carries {type(op.attrs).__name__}"


def inputs_are_as_many_as_the_kind_takes(graph: Graph) -> Problems:
    for op in graph.ops:
        least, most = _INPUTS[op.kind]
        if not least <= len(op.inputs) <= most:
            yield f"%{op.name}: {op.kind} takes {least} to {most} inputs, found {len(op.inputs)}"


def types_are_passed_on(graph: Graph) -> Problems:
    for op in graph.ops:
        for source in _sources(graph, op):
            if op.kind in _SAME_TYPE and source.type != op.type:
                yield f"%{op.name}: is {op.type}, reads %{source.name} which is {source.type}"


def every_layer_is_computed_once_in_order(graph: Graph) -> Problems:
    """Once a rank: in a TP group with replicated mixers every rank has the layer's mixer."""
    mixers = [(op.attrs.layer, op.seat) for op in graph.ops if isinstance(op.attrs, MixerAttrs)]
    layers = list(dict.fromkeys(layer for layer, _ in mixers))
    if layers != list(range(len(layers))):
        yield f"expected layers 0, 1, 2 ... in order, found {layers}"
    for (layer, seat), times in Counter(mixers).items():
        if times > 1:
            yield f"layer {layer} has {times} mixers on {seat}"


def ends_are_single(graph: Graph) -> Problems:
    for kind in (OpKind.EMBED, OpKind.HEAD, OpKind.SAMPLE):
        found = [op.name for op in graph.ops if op.kind is kind]
        if len(found) != 1:
            yield f"expected one {kind}, found {found}"


def tiles_are_a_run(graph: Graph) -> Problems:
    for op in graph.ops:
        if isinstance(op.attrs, MlpAttrs):
            first, end = op.attrs.tiles
            if not 0 <= first < end <= op.attrs.num_tiles:
                yield f"%{op.name}: tiles [{first}, {end}) of {op.attrs.num_tiles}"


def all_are_seated_or_none(graph: Graph) -> Problems:
    seated = [op for op in graph.ops if op.seat is not None]
    if seated and len(seated) < len(graph.ops):
        name = next(op.name for op in graph.ops if op.seat is None)
        yield f"%{name} has no seat, others have"
    stages: dict[int, int] = {}
    for op in seated:
        assert op.seat is not None
        if stages.setdefault(op.seat.rank, op.seat.stage) != op.seat.stage:
            yield f"%{op.name}: rank {op.seat.rank} is in two stages"


def a_layer_is_in_one_stage(graph: Graph) -> Problems:
    stages: dict[int, int] = {}
    for op in graph.ops:
        layer = _layer_of(op)
        if op.seat is None or layer is None:
            continue
        if stages.setdefault(layer, op.seat.stage) != op.seat.stage:
            yield f"%{op.name}: layer {layer} is in stages {stages[layer]} and {op.seat.stage}"


def borrowed_kv_is_in_the_same_stage(graph: Graph) -> Problems:
    mixers = [op for op in graph.ops if isinstance(op.attrs, MixerAttrs)]
    homes = {(op.attrs.layer, op.seat) for op in mixers if isinstance(op.attrs, MixerAttrs)}
    for op in mixers:
        assert isinstance(op.attrs, MixerAttrs)
        source = op.attrs.kv_from
        if source is not None and (source, op.seat) not in homes:
            yield f"%{op.name}: reads the KV of layer {source}, which is elsewhere"


def shares_of_an_mlp_are_exchanged(graph: Graph) -> Problems:
    """Shares cover all tiles once in rank order; only exchanges of those very ranks read them."""
    for layer, shares in _shares(graph).items():
        ordered = sorted(shares, key=_rank_of)
        spans = [op.attrs.tiles for op in ordered if isinstance(op.attrs, MlpAttrs)]
        cuts = [0, *(span[1] for span in spans)]
        num_tiles = max(op.attrs.num_tiles for op in ordered if isinstance(op.attrs, MlpAttrs))
        if spans != list(pairwise(cuts)) or cuts[-1] != num_tiles:
            yield f"layer {layer}: tiles {spans} do not cover [0, {num_tiles}) in rank order"
        if not _is_lowered(graph) or len(ordered) == 1:
            continue
        wanted = ExchangeAttrs(layer, tuple(_rank_of(op) for op in ordered))
        for op in ordered:
            readers = [(reader.attrs, reader.seat) for reader in graph.consumers[op.name]]
            if readers != [(wanted, op.seat)]:
                yield f"%{op.name}: expected to be read by one exchange of ranks {wanted.ranks}"


def values_cross_ranks_by_send_and_recv(graph: Graph) -> Problems:
    if not _is_lowered(graph):
        return
    for op in graph.ops:
        for source in _sources(graph, op):
            crosses = source.seat != op.seat
            if crosses and not (op.kind is OpKind.RECV and source.kind is OpKind.SEND):
                yield f"%{op.name} reads %{source.name} of another rank without a recv"
            if not crosses and (op.kind is OpKind.RECV or source.kind is OpKind.SEND):
                yield f"%{op.name} receives %{source.name} on the rank that sent it"


def every_send_has_its_recv(graph: Graph) -> Problems:
    for op in graph.ops:
        if op.kind is not OpKind.SEND:
            continue
        readers = graph.consumers[op.name]
        if [reader.attrs for reader in readers] != [op.attrs]:
            yield f"%{op.name}: expected one recv of the same link, found {len(readers)} readers"


RULES: tuple[Callable[[Graph], Problems], ...] = (
    names_are_single,
    inputs_are_defined_before_use,
    outputs_are_defined,
    attributes_are_of_the_kind,
    inputs_are_as_many_as_the_kind_takes,
    types_are_passed_on,
    every_layer_is_computed_once_in_order,
    ends_are_single,
    tiles_are_a_run,
    all_are_seated_or_none,
    a_layer_is_in_one_stage,
    borrowed_kv_is_in_the_same_stage,
    shares_of_an_mlp_are_exchanged,
    values_cross_ranks_by_send_and_recv,
    every_send_has_its_recv,
)


def _sources(graph: Graph, op: Op) -> Iterator[Op]:
    return (graph.by_name[name] for name in op.inputs if name in graph.by_name)


def _layer_of(op: Op) -> int | None:
    if isinstance(op.attrs, NormAttrs | MixerAttrs | MlpAttrs | AddAttrs | ExchangeAttrs):
        return op.attrs.layer
    return None


def _shares(graph: Graph) -> dict[int, list[Op]]:
    """Seated MLPs by layer."""
    found: dict[int, list[Op]] = {}
    for op in graph.ops:
        if isinstance(op.attrs, MlpAttrs) and op.seat is not None:
            found.setdefault(op.attrs.layer, []).append(op)
    return found


def _rank_of(op: Op) -> int:
    return op.seat.rank if op.seat is not None else -1


def _is_lowered(graph: Graph) -> bool:
    return any(isinstance(op.attrs, TransferAttrs) for op in graph.ops)
