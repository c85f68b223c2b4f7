"""A graph and its text say the same thing."""

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plancc.ir.errors import BadInput
from plancc.ir.graph import Graph
from plancc.ir.graph_text import graph_text, parse_graph
from plancc.ir.op import (
    ATTRS,
    AddAttrs,
    EmbedAttrs,
    ExchangeAttrs,
    HeadAttrs,
    MixerAttrs,
    MlpAttrs,
    NormAttrs,
    Op,
    OpKind,
    SampleAttrs,
    Seat,
    TensorType,
    TransferAttrs,
)

COUNT = st.integers(0, 2**40)
LAYER = st.integers(0, 200)
NAMES = st.from_regex(r"[A-Za-z0-9_.]{1,12}", fullmatch=True)
PAIR = st.tuples(LAYER, LAYER)

ATTRIBUTES = {
    OpKind.EMBED: st.builds(EmbedAttrs, COUNT),
    OpKind.NORM: st.builds(NormAttrs, st.none() | LAYER),
    OpKind.MIXER: st.builds(
        MixerAttrs,
        LAYER,
        st.sampled_from(["attention", "gdn", "other"]),
        COUNT,
        window=st.none() | COUNT,
        kv_from=st.none() | LAYER,
        kv_bytes_per_token=COUNT,
        state_bytes_per_slot=COUNT,
    ),
    OpKind.MLP: st.builds(
        MlpAttrs, LAYER, st.sampled_from(["swiglu", "geglu", "mlp", "moe"]), COUNT, PAIR, LAYER
    ),
    OpKind.ADD: st.builds(AddAttrs, LAYER),
    OpKind.HEAD: st.builds(HeadAttrs, COUNT, st.booleans()),
    OpKind.SAMPLE: st.just(SampleAttrs()),
    OpKind.SEND: st.builds(TransferAttrs, LAYER, st.sampled_from(["hidden", "partial", "step"])),
    OpKind.RECV: st.builds(TransferAttrs, LAYER, st.just("hidden")),
    OpKind.EXCHANGE: st.builds(ExchangeAttrs, LAYER, st.lists(LAYER, max_size=4).map(tuple)),
}

TYPES = st.builds(
    TensorType, COUNT, COUNT, st.sampled_from(["float32", "float16", "bfloat16", "int64"])
)


@st.composite
def ops(draw: st.DrawFn) -> Op:
    kind = draw(st.sampled_from(list(OpKind)))
    return Op(
        name=draw(NAMES),
        kind=kind,
        inputs=tuple(draw(st.lists(NAMES, max_size=3))),
        attrs=draw(ATTRIBUTES[kind]),
        type=draw(TYPES),
        seat=draw(st.none() | st.builds(Seat, LAYER, LAYER)),
    )


GRAPHS = st.builds(
    Graph, st.lists(ops(), max_size=6).map(tuple), st.lists(NAMES, max_size=2).map(tuple)
)


@settings(max_examples=50)
@given(GRAPHS)
def test_parse_is_the_inverse_of_text(graph: Graph) -> None:
    assert parse_graph(graph_text(graph)) == graph


@settings(max_examples=50)
@given(GRAPHS)
def test_every_op_takes_one_line_and_text_ends_in_a_newline(graph: Graph) -> None:
    text = graph_text(graph)
    assert len(text.splitlines()) == len(graph.ops) + 1
    assert text.endswith("\n")


def test_every_kind_has_attributes_that_this_file_tries() -> None:
    assert set(ATTRS) == set(OpKind) == set(ATTRIBUTES)


def test_no_two_kinds_but_send_and_recv_share_their_attributes() -> None:
    shared = [kind for kind in OpKind if list(ATTRS.values()).count(ATTRS[kind]) > 1]
    assert shared == [OpKind.SEND, OpKind.RECV]


def test_attribute_values_are_plain() -> None:
    for attrs in ATTRS.values():
        assert all(field.type is not dict for field in fields(attrs))


GOOD = "%a = add(%b, %c) {layer=3} : 4x8xfloat32 @s1.r2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (GOOD.replace("add", "sub"), "'sub' is not a valid OpKind"),
        (GOOD.replace("layer=3", "leyer=3"), "no attribute leyer"),
        (GOOD.replace("layer=3", 'layer="x"'), "valid integer"),
        (GOOD.replace("layer=3", ""), "layer"),
        (GOOD.replace("%b", "b"), "expected %name, found 'b'"),
        (GOOD.replace("float32", "int3"), "int3"),
        (GOOD.replace("@s1.r2", "@r2"), "expected '} : type @seat'"),
        ("hello", "expected %name = kind"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_number(line: str, found: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_graph(f"# a comment\n{line}\nreturn %a\n")
    assert "line 2" in str(error.value)
    assert found in str(error.value)


def test_a_text_without_return_is_refused() -> None:
    with pytest.raises(BadInput, match="return"):
        parse_graph(GOOD)
