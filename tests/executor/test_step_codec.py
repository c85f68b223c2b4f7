"""Steps as whole numbers: what arrives is what was sent, and a decode token is one message."""

from hypothesis import given
from hypothesis import strategies as st

from plancc.executor.step import Step
from plancc.executor.step_codec import HEADER_WORDS, ReportAsk, body_words, decode, encode

small = st.integers(0, 2**40)
pages = st.lists(st.tuples(small, small, small), max_size=5).map(tuple)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    rows = draw(st.integers(1, 9))
    phase = draw(st.sampled_from(["prompt", "decode"]))
    per_row = 1 if phase == "prompt" else rows
    numbers = st.lists(small, min_size=per_row, max_size=per_row).map(tuple)
    tokens = draw(st.lists(small, min_size=rows, max_size=rows).map(tuple))
    wants = draw(st.booleans())
    return Step(phase, draw(numbers), draw(numbers), tokens, draw(pages), wants)  # type: ignore[arg-type]


@given(steps())
def test_a_step_survives_the_way(step: Step) -> None:
    header, body = encode(step)
    assert len(header) == HEADER_WORDS
    assert body_words(header) == len(body)
    assert decode(header, body) == step


def test_a_report_survives_the_way() -> None:
    ask = ReportAsk(slot=3, num_tokens=77, wants_kv=True)
    header, body = encode(ask)
    assert body == []
    assert decode(header, body) == ask


def test_a_decode_token_is_one_message_even_when_it_opens_a_page() -> None:
    step = Step("decode", (0,), (32,), (5,), ((0, 2, 7),))
    assert encode(step)[1] == []
