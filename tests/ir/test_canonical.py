"""One byte form: readable, stable, and the inverse of json.loads."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_hand_plans import hand_plan

from plancc.ir.canonical import sha256_of, to_json
from plancc.ir.plan import Plan

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=80)
@given(PLAIN)
def test_text_reads_back_as_the_same_data(value: object) -> None:
    text = to_json(value)
    assert json.loads(text) == value
    assert text.endswith("\n")
    assert "\r" not in text


@settings(max_examples=80)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_lines_stay_within_the_width(values: list[int]) -> None:
    assert max(map(len, to_json({"key": values}).splitlines())) <= 100 + len(", ")


def test_a_short_list_takes_one_line_and_a_document_never_does() -> None:
    assert to_json({"layers": [0, 16]}) == '{\n  "layers": [0, 16]\n}\n'


def test_a_changed_value_is_a_changed_line() -> None:
    before = to_json(hand_plan().data()).splitlines()
    data = hand_plan().data()
    data["devices"][1]["ledger"]["kv"] += 1
    after = to_json(data).splitlines()
    assert len(before) == len(after)
    assert sum(one != two for one, two in zip(before, after, strict=True)) == 1


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        to_json({"a": float("nan")})


def test_the_digest_is_that_of_the_shortest_json() -> None:
    value = {"b": [1, 2.5, None], "a": "x"}
    expected = hashlib.sha256(b'{"b":[1,2.5,null],"a":"x"}').hexdigest()
    assert sha256_of(value) == expected


def test_key_order_is_part_of_the_digest() -> None:
    assert sha256_of({"a": 1, "b": 2}) != sha256_of({"b": 2, "a": 1})


def test_the_digest_of_a_plan_covers_every_other_key() -> None:
    plan = hand_plan()
    for key in Plan.model_fields:
        data = plan.data()
        if key in ("digest", "format"):
            continue
        data[key] = "changed"
        del data["digest"]
        assert sha256_of(data) != plan.digest


def test_the_digest_does_not_cover_itself() -> None:
    plan = hand_plan()
    assert plan.model_copy(update={"digest": "f" * 64}).computed_digest() == plan.digest


def test_a_plan_keeps_the_key_order_of_its_format() -> None:
    assert list(hand_plan().data()) == [
        "format", "digest", "provenance", "inputs", "ask", "model", "devices", "stages", "links",
        "programs", "runtime", "weights", "predicted", "alternatives",
    ]  # fmt: skip
