"""Tokens drawn from logits, against a plain definition of each filter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plancc.executor.sampling import Sampling, is_finite, sample, uniform
from plancc.ir.errors import BadInput


def logits_of(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def allowed(values: list[float], temperature: float, top_k: int, top_p: float) -> set[int]:
    """By sorting everything: best first, lower id first among equals."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    order = order[: top_k or len(order)]
    weights = [math.exp((values[i] - values[order[0]]) / temperature) for i in order]
    kept, mass, total = set(), 0.0, sum(weights)
    for token, weight in zip(order, weights, strict=True):
        kept.add(token)
        mass += weight
        if mass >= top_p * total:
            break
    return kept


def test_greedy_takes_the_highest_and_the_lowest_id_among_equals() -> None:
    assert sample(logits_of([0.5, 2.0, -1.0, 2.0]), Sampling(), position=3) == 1


@given(
    values=st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=30),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    position=st.integers(0, 50),
)
def test_only_tokens_that_the_filters_keep_are_drawn(
    values: list[float], top_k: int, top_p: float, temperature: float, position: int
) -> None:
    drawn = sample(logits_of(values), Sampling(temperature, top_k, top_p, seed=1), position)
    # the border of top-p may fall on either side of equal sums rounded differently
    loose = allowed(values, temperature, top_k, min(1.0, top_p + 1e-9))
    assert drawn in loose


def test_top_p_over_a_large_vocabulary_keeps_what_a_full_sort_keeps() -> None:
    rng = np.random.default_rng(7)
    values = rng.standard_normal(20_000).astype(np.float32)
    kept = allowed([float(v) for v in values], 1.0, 0, 0.5)
    drawn = {sample(values, Sampling(1.0, top_p=0.5, seed=3), p) for p in range(20)}
    assert drawn <= kept
    assert len(kept) > 1024, "the case must pass the first look"


def test_the_noise_is_a_function_of_seed_and_position_only() -> None:
    assert uniform(5, 9) == uniform(5, 9)
    draws = {uniform(seed, position) for seed in range(20) for position in range(20)}
    assert len(draws) == 400
    assert all(0 <= value < 1 for value in draws)
    # the number itself is part of the promise: another machine draws the same
    assert uniform(0, 0).hex() == "0x1.7a5d3204726c0p-7"


def test_tokens_come_as_often_as_their_probability() -> None:
    values = logits_of([math.log(0.6), math.log(0.3), math.log(0.1)])
    drawn = [sample(values, Sampling(1.0, seed=11), position) for position in range(6000)]
    for token, probability in enumerate((0.6, 0.3, 0.1)):
        assert abs(drawn.count(token) / 6000 - probability) < 0.02


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_single_bad_logit_is_seen(bad: float) -> None:
    values = logits_of([0.0] * 999)
    assert is_finite(values)
    values[500] = bad
    assert not is_finite(values)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"temperature": -1.0}, "temperature: expected 0 or more, found -1.0"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top-k"),
        ({"top_p": 0.0}, "top-p: expected above 0, at most 1, found 0.0"),
        ({"top_p": 1.5}, "top-p"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_settings_are_refused_by_name(fields: dict[str, float], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        Sampling(**fields)  # type: ignore[arg-type]
