"""lower: what crosses ranks is sent and received; each rank's ops become its program.

    before  %l3.add2 = add(...) @s0.r0
            %l4.norm1 = norm(%l3.add2) @s1.r1
    after   %l3.add2.send1 = send(%l3.add2) {link=0, payload="hidden"} @s0.r0
            %l3.add2.recv1 = recv(%l3.add2.send1) {link=0, payload="hidden"} @s1.r1
            %l4.norm1 = norm(%l3.add2.recv1) @s1.r1

The driver (the rank with the head) tells every other rank what the step is before anything runs.
"""

from dataclasses import replace

from plancc.compiler.compilation import Compilation, Lowered
from plancc.compiler.links import link_rows
from plancc.compiler.programs import programs_of
from plancc.ir.graph import Graph
from plancc.ir.op import Op, OpKind, Seat, TensorType, TransferAttrs


def lower(state: Compilation) -> Compilation:
    assert state.placement is not None
    assert all(len(stage.devices) == 1 for stage in state.placement.stages), "no TP groups yet"
    graph = _with_steps(_with_hops(state.graph))
    devices = tuple(name for stage in state.placement.stages for name in stage.devices)
    links = link_rows(graph, devices, state.manifest, state.topology, state.ask.workers)
    programs = programs_of(graph, devices)
    return replace(state, graph=graph, lowered=Lowered(links, programs))


def _with_hops(graph: Graph) -> Graph:
    """One send and one recv for every value that another rank reads; links in graph order."""
    ops: list[Op] = []
    received: dict[tuple[str, Seat], str] = {}
    for op in graph.ops:
        inputs = []
        for name in op.inputs:
            source = graph.by_name[name]
            assert op.seat is not None
            if source.seat == op.seat:
                inputs.append(name)
                continue
            if (name, op.seat) not in received:
                pair = _transfer(source, op.seat, link=len(received))
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
    used = sum(op.kind is OpKind.SEND for op in graph.ops)
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
