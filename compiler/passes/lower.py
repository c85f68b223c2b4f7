"""lower: what crosses ranks is sent and received; each rank's ops become its program.

    before  %l3.add2 = add(...) @s0.r0
            %l4.norm1 = norm(%l3.add2) @s1.r1
    after   %l3.add2.send1 = send(%l3.add2) {link=0, payload="hidden"} @s0.r0
            %l3.add2.recv1 = recv(%l3.add2.send1) {link=0, payload="hidden"} @s1.r1
            %l4.norm1 = norm(%l3.add2.recv1) @s1.r1

    before  %l0.add2 = add(%l0.add1, %l0.mlp) @s0.r0
            %l0.mlp has tiles [0, 8) of 16, %l0.mlp.r1 the others
    after   %l0.exchange = exchange(%l0.mlp) {layer=0, ranks=[0, 1]} @s0.r0
            %l0.exchange.r1 = exchange(%l0.mlp.r1) {layer=0, ranks=[0, 1]} @s0.r1
            %l0.add2 = add(%l0.add1, %l0.exchange) @s0.r0

The driver (the rank with the head) tells every other rank what the step is before anything runs.
"""

from collections.abc import Iterator
from dataclasses import replace

from plancc.compiler.compilation import Compilation, Lowered
from plancc.compiler.links import link_rows
from plancc.compiler.programs import programs_of
from plancc.ir.graph import Graph
from plancc.ir.op import (
    ExchangeAttrs,
    MlpAttrs,
    Op,
    OpKind,
    Seat,
    TensorType,
    TransferAttrs,
)


def lower(state: Compilation) -> Compilation:
    assert state.placement is not None
    graph = _with_steps(_with_hops(_with_exchanges(state.graph)))
    devices = tuple(name for stage in state.placement.stages for name in stage.devices)
    links = link_rows(graph, devices, state.manifest, state.topology, state.ask.workers)
    programs = programs_of(graph, devices)
    return replace(state, graph=graph, lowered=Lowered(links, programs))


def _with_exchanges(graph: Graph) -> Graph:
    """After the last share of a cut MLP an exchange on each rank, which all read instead."""
    shares: dict[int, list[Op]] = {}
    for op in graph.ops:
        if isinstance(op.attrs, MlpAttrs) and op.attrs.tiles != (0, op.attrs.num_tiles):
            shares.setdefault(op.attrs.layer, []).append(op)
    summed = {op.name: _exchange_name(op) for group in shares.values() for op in group}
    ends = {group[-1].name: group for group in shares.values()}
    ops: list[Op] = []
    for op in graph.ops:
        ops.append(replace(op, inputs=tuple(summed.get(name, name) for name in op.inputs)))
        ops.extend(_exchanges(ends.get(op.name, [])))
    return Graph(tuple(ops), graph.outputs)


def _exchange_name(op: Op) -> str:
    return op.name.replace(".mlp", ".exchange", 1)


def _exchanges(shares: list[Op]) -> Iterator[Op]:
    """One exchange a rank, in rank order."""
    by_rank = {op.seat.rank: op for op in shares if op.seat is not None}
    ranks = tuple(sorted(by_rank))
    for rank in ranks:
        op = by_rank[rank]
        assert isinstance(op.attrs, MlpAttrs)
        attrs = ExchangeAttrs(op.attrs.layer, ranks)
        yield Op(_exchange_name(op), OpKind.EXCHANGE, (op.name,), attrs, op.type, op.seat)


def _with_hops(graph: Graph) -> Graph:
    """One send and one recv for every value that another rank reads; links in graph order.

    An owner's normed rows of all layers go over one link.
    """
    ops: list[Op] = []
    received: dict[tuple[str, Seat], str] = {}
    links: dict[tuple[Seat | None, Seat, bool], int] = {}
    for op in graph.ops:
        inputs = []
        for name in op.inputs:
            source = graph.by_name[name]
            assert op.seat is not None
            if source.seat == op.seat:
                inputs.append(name)
                continue
            if (name, op.seat) not in received:
                key = (source.seat, op.seat, source.kind is OpKind.NORM)
                pair = _transfer(source, op.seat, link=links.setdefault(key, len(links)))
                received[name, op.seat] = pair[1].name
                ops.extend(pair)
            inputs.append(received[name, op.seat])
        ops.append(replace(op, inputs=tuple(inputs)))
    return Graph(tuple(ops), graph.outputs)


def _transfer(source: Op, target: Seat, link: int) -> tuple[Op, Op]:
    attrs = TransferAttrs(link, "hidden")
    send = f"{source.name}.send{target.rank}"
    recv = f"{source.name}.recv{target.rank}"
    return (
        Op(send, OpKind.SEND, (source.name,), attrs, source.type, source.seat),
        Op(recv, OpKind.RECV, (send,), attrs, source.type, target),
    )


def _with_steps(graph: Graph) -> Graph:
    """The driver's sends of the step first, in rank order, and their receipts."""
    driver = graph.by_name[graph.outputs[0]].seat
    used = len({op.attrs.link for op in graph.ops if isinstance(op.attrs, TransferAttrs)})
    others = [seat for seat in graph.seats if seat != driver]
    rows = graph.by_name["embed"].type.rows
    ops = [
        step
        for link, seat in enumerate(others, start=used)
        for step in _step_ops(seat, driver, link, rows)
    ]
    heard = {op.seat: op.name for op in ops if op.kind is OpKind.RECV}
    embed = graph.by_name["embed"]
    told = (heard[embed.seat],) if embed.seat in heard else ()
    rest = graph.map(lambda op: replace(op, inputs=told) if op is embed else op)
    return Graph((*ops, *rest.ops), graph.outputs)


def _step_ops(seat: Seat, driver: Seat | None, link: int, rows: int) -> tuple[Op, Op]:
    attrs, step = TransferAttrs(link, "step"), TensorType(rows, 1, "int64")
    send = Op(f"step.send{seat.rank}", OpKind.SEND, (), attrs, step, driver)
    return (send, Op(f"step.recv{seat.rank}", OpKind.RECV, (send.name,), attrs, step, seat))
