"""RoPE settings of config.json: every spelling, every known kind, and nothing silently (E07)."""

import math
from typing import Any

import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from plancc.compiler.frontends.rope import RopeReading, read_rope
from plancc.ir.errors import BadInput
from plancc.ir.manifest import Rope, RopeScaling

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}


def read(max_position: int = 40960, **config: Any) -> RopeReading:
    fields = {"rope_theta": 1e6} | config
    return read_rope(fields, where="config.json", head_dim=128, max_position=max_position)


def scaling(**config: Any) -> RopeScaling:
    (rope,) = read(**config).ropes.values()
    assert rope.scaling is not None
    return rope.scaling


def refusal(**config: Any) -> str:
    with pytest.raises(BadInput) as caught:
        read(**config)
    return str(caught.value)


def test_type_and_rope_type_are_the_same_word() -> None:
    old = read(rope_scaling={"type": "yarn"} | YARN)
    new = read(rope_scaling={"rope_type": "yarn"} | YARN)
    both = read(rope_scaling={"rope_type": "yarn", "type": "yarn"} | YARN)
    inside = read(rope_theta=None, rope_parameters={"rope_type": "yarn", "rope_theta": 1e6} | YARN)
    assert old == new == both == inside
    assert old.ropes["default"].theta == 1e6


def test_type_and_rope_type_that_differ_are_refused() -> None:
    text = refusal(rope_scaling={"type": "mrope", "rope_type": "default"})
    assert "rope_type 'default' and type 'mrope' differ" in text


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"rope_scaling": None},
        {"rope_scaling": {}},
        {"rope_scaling": {"type": "none"}},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ],
)
def test_no_scaling_in_all_its_spellings(config: dict[str, Any]) -> None:
    reading = read(**config)
    assert reading.ropes == {"default": Rope(theta=1e6)}
    assert (reading.max_context, reading.notes) == (40960, ())


def test_llama3_keeps_max_position_which_counts_the_factor_already() -> None:
    reading = read(131072, rope_scaling={"rope_type": "llama3"} | LLAMA3)
    assert reading.max_context == 131072
    assert reading.ropes["default"].scaling == RopeScaling(
        kind="llama3", factor=8, original_context=8192, low_freq_factor=1, high_freq_factor=4
    )


def test_yarn_reaches_factor_times_original() -> None:
    reading = read(rope_scaling={"type": "yarn"} | YARN)
    assert reading.max_context == 4 * 32768
    found = reading.ropes["default"].scaling
    assert found is not None
    assert (found.beta_fast, found.beta_slow) == (32, 1)
    assert found.attention_factor == pytest.approx(0.1 * math.log(4) + 1)


def test_yarn_without_original_falls_back_to_max_position_and_says_so() -> None:
    reading = read(32768, rope_scaling={"type": "yarn", "factor": 4.0})
    assert reading.max_context == 131072
    assert scaling(max_position=32768, rope_scaling={"type": "yarn", "factor": 4.0}) == scaling(
        rope_scaling={"type": "yarn"} | YARN
    )
    assert any("max_position_embeddings 32768 stands in" in note for note in reading.notes)


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_linear_and_dynamic_reach_factor_times_max_position(kind: str) -> None:
    reading = read(4096, rope_scaling={"type": kind, "factor": 2.5})
    assert reading.max_context == 10240
    assert "max_context 10240" in reading.notes[0]
    assert reading.ropes["default"].scaling == RopeScaling(
        kind=kind, factor=2.5, original_context=4096
    )


def test_each_layer_type_may_have_its_own_settings() -> None:
    sets = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    ropes = read(rope_theta=None, rope_parameters=sets).ropes
    assert ropes["sliding_attention"] == Rope(theta=1e4)
    assert ropes["full_attention"].theta == 1e6
    assert ropes["full_attention"].scaling is not None


@pytest.mark.parametrize("kind", ["foo", "longrope", "su", "mrope", "proportional"])
def test_an_unknown_kind_is_refused_by_name(kind: str) -> None:
    text = refusal(rope_scaling={"type": kind, "factor": 2.0})
    assert "expected one of none, default, linear, dynamic, llama3, yarn" in text
    assert repr(kind) in text


def test_a_parameter_that_would_be_ignored_is_refused_by_name() -> None:
    text = refusal(rope_scaling={"type": "dynamic", "factor": 2.0, "alpha": 1000})
    assert "dynamic has no parameter alpha" in text
    assert "has no parameter mrope_section" in refusal(rope_scaling={"mrope_section": [1, 2]})


@pytest.mark.parametrize("missing", sorted(LLAMA3))
def test_llama3_needs_all_four_numbers(missing: str) -> None:
    given = {key: value for key, value in LLAMA3.items() if key != missing}
    assert f"llama3 needs {missing}" in refusal(rope_scaling={"type": "llama3"} | given)


def test_numbers_that_are_none_are_refused_with_their_field() -> None:
    assert "rope_theta: expected a number above 0, found -1.0" in refusal(rope_theta=-1.0)
    for kind in ("linear", "yarn"):
        for factor in ("big", 0, -4.0, True, float("inf"), float("nan")):
            assert f"field factor: expected a number above 0, found {factor!r}" in refusal(
                rope_scaling={"type": kind, "factor": factor}
            )
    assert "expected a mapping" in refusal(rope_scaling="linear")


def test_two_different_settings_in_one_file_are_refused() -> None:
    text = refusal(rope_scaling={"type": "linear", "factor": 2.0},
                   rope_parameters={"rope_type": "linear", "factor": 4.0})  # fmt: skip
    assert "rope_scaling and rope_parameters differ" in text


def test_a_missing_theta_is_the_architectures_and_is_said() -> None:
    reading = read(rope_theta=None)
    assert reading.ropes["default"].theta == 10000.0
    assert "rope_theta is absent" in reading.notes[0]


def test_a_partial_rotation_keeps_its_width() -> None:
    assert read(partial_rotary_factor=0.25).ropes["default"].rotary_dim == 32


@pytest.mark.parametrize(
    "given",
    [
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048,
         "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 16.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048,
         "attention_factor": 1.3},
    ],
)  # fmt: skip
def test_yarns_attention_factor_is_the_one_that_transformers_derives(given: dict[str, Any]) -> None:
    config = LlamaConfig(max_position_embeddings=8192, rope_parameters={"rope_theta": 1e4} | given)
    _, expected = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    assert scaling(max_position=8192, rope_scaling=given).attention_factor == pytest.approx(
        expected
    )
