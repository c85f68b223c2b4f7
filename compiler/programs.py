"""A rank's program, read off its ops: segments between communications, and what frees a link."""

from collections.abc import Iterator, Sequence
from typing import Literal

from plancc.ir.graph import Graph
from plancc.ir.instruction import Exchange, Free, Instruction, Recv, Run, Sample, Send
from plancc.ir.op import (
    COMMUNICATION,
    ExchangeAttrs,
    MixerAttrs,
    MlpAttrs,
    NormAttrs,
    Op,
    OpKind,
    TransferAttrs,
)
from plancc.ir.plan import Program


def programs_of(graph: Graph, devices: Sequence[str]) -> tuple[Program, ...]:
    """One program a rank, in the order of its ops."""
    return tuple(
        Program(
            rank=seat.rank,
            stage=seat.stage,
            device=devices[seat.rank],
            instructions=tuple(_instructions(tuple(graph.on(seat.rank)))),
        )
        for seat in graph.seats
    )


def _instructions(ops: tuple[Op, ...]) -> Iterator[Instruction]:
    """A run of computing ops is one segment; rows that it has read are freed right after it."""
    segment: list[Op] = []
    held: list[int] = []
    count = 0
    for op in (*ops, None):
        if op is not None and op.kind not in (*COMMUNICATION, OpKind.SAMPLE):
            segment.append(op)
            continue
        if segment:
            yield _run(count, segment)
            yield from (Free(link=link) for link in held)
            count, segment, held = count + 1, [], []
        if op is None:
            return
        yield from _communicate(op)
        if isinstance(op.attrs, TransferAttrs) and op.kind is OpKind.RECV:
            held += [op.attrs.link] if op.attrs.payload == "hidden" else []


def _communicate(op: Op) -> Iterator[Instruction]:
    if op.kind is OpKind.SAMPLE:
        yield Sample()
        return
    if isinstance(op.attrs, ExchangeAttrs):
        yield Exchange(layer=op.attrs.layer, ranks=op.attrs.ranks)
        return
    assert isinstance(op.attrs, TransferAttrs)
    yield Send(link=op.attrs.link) if op.kind is OpKind.SEND else Recv(link=op.attrs.link)


def _run(segment: int, ops: Sequence[Op]) -> Run:
    layers = [op.attrs.layer for op in ops if isinstance(op.attrs, MixerAttrs)]
    part = _part(ops, has_mixer=bool(layers))
    if part == "mlp":
        layers = [op.attrs.layer for op in ops if isinstance(op.attrs, MlpAttrs)]
    kinds = {op.kind for op in ops}
    return Run(
        segment=segment,
        layers=(layers[0], layers[-1] + 1) if layers else (0, 0),
        embed=OpKind.EMBED in kinds,
        head=OpKind.HEAD in kinds,
        part=part,
    )


def _part(ops: Sequence[Op], *, has_mixer: bool) -> Literal["whole", "mixer", "mlp"]:
    """An owner sends the normed rows between two of its segments; the others have only shares."""
    if not has_mixer and any(op.kind is OpKind.MLP for op in ops):
        return "mlp"
    last = ops[-1].attrs
    return "mixer" if isinstance(last, NormAttrs) and last.layer is not None else "whole"
