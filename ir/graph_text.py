"""Graphs as text, one op a line; `parse_graph` is the inverse of `graph_text`.

    %l0.norm1 = norm(%embed) {layer=0} : 512x576xfloat32 @s0.r0
    return %sample

Attribute values are JSON. An op without a seat has no @.
"""

import json
import re
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from plancc.ir.errors import BadInput
from plancc.ir.graph import Graph
from plancc.ir.op import ATTRS, Attrs, Op, OpKind, Seat, TensorType

_NAME = r"[A-Za-z0-9_.]+"
_HEAD = re.compile(rf"%({_NAME}) = ([a-z]+)\(([^)]*)\) \{{")
_TAIL = re.compile(r"\} : (\d+)x(\d+)x([a-z0-9]+)(?: @s(\d+)\.r(\d+))?")
_KEY = re.compile(r"([a-z_]+)=")


def graph_text(graph: Graph) -> str:
    """The graph's text, ending in a newline; equal graphs give equal text."""
    lines = [_op_text(op) for op in graph.ops]
    return "\n".join([*lines, "return " + _names(graph.outputs)]) + "\n"


def parse_graph(text: str) -> Graph:
    """The graph in a text; blank lines and # comments are skipped. Raises BadInput with the line.

    What the graph means is not judged here: see `verify`.
    """
    ops: list[Op] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            if line.startswith("return "):
                return Graph(tuple(ops), _parse_names(line.removeprefix("return ")))
            ops.append(_parse_op(line))
        except (ValueError, ValidationError) as error:
            reason = str(error).replace("\n", " ")
            raise BadInput(f"graph text, line {number}: {reason}: {line!r}") from None
    raise BadInput("graph text: expected a last line 'return %name', found none")


def _op_text(op: Op) -> str:
    values = ((field.name, getattr(op.attrs, field.name)) for field in fields(op.attrs))
    attrs = ", ".join(f"{name}={json.dumps(value)}" for name, value in values)
    seat = f" @s{op.seat.stage}.r{op.seat.rank}" if op.seat else ""
    shape = f"{op.type.rows}x{op.type.width}x{op.type.dtype}"
    return f"%{op.name} = {op.kind}({_names(op.inputs)}) {{{attrs}}} : {shape}{seat}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"%{name}" for name in names)


def _parse_op(line: str) -> Op:
    head = _HEAD.match(line)
    if head is None:
        raise ValueError("expected %name = kind(%inputs) {attributes} : type @seat")
    name, kind, inputs = head.groups()
    values, end = _parse_attrs(line, head.end())
    tail = _TAIL.fullmatch(line, end)
    if tail is None:
        raise ValueError(f"expected '}} : type @seat', found {line[end:]!r}")
    rows, width, dtype, stage, rank = tail.groups()
    return Op(
        name=name,
        kind=OpKind(kind),
        inputs=_parse_names(inputs),
        attrs=_typed(ATTRS[OpKind(kind)], values),
        type=_TYPE.validate_python({"rows": int(rows), "width": int(width), "dtype": dtype}),
        seat=Seat(int(stage), int(rank)) if stage is not None else None,
    )


_TYPE = TypeAdapter(TensorType)


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(part for part in text.split(", ") if part)
    for name in names:
        if not re.fullmatch(f"%{_NAME}", name):
            raise ValueError(f"expected %name, found {name!r}")
    return tuple(name[1:] for name in names)


def _parse_attrs(line: str, start: int) -> tuple[dict[str, object], int]:
    """Values by name, and where the closing brace stands."""
    values: dict[str, object] = {}
    decoder, at = json.JSONDecoder(), start
    while key := _KEY.match(line, at):
        values[key.group(1)], at = decoder.raw_decode(line, key.end())
        at += 2 if line.startswith(", ", at) else 0
    return values, at


def _typed(attrs: type[Attrs], values: dict[str, object]) -> Attrs:
    unknown = sorted(set(values) - {field.name for field in fields(attrs)})
    if unknown:
        raise ValueError(f"{attrs.__name__} has no attribute {unknown[0]}")
    typed: Attrs = _ADAPTERS[attrs].validate_python(values)
    return typed


_ADAPTERS: dict[type[Attrs], TypeAdapter[Any]] = {
    attrs: TypeAdapter(attrs) for attrs in ATTRS.values()
}
