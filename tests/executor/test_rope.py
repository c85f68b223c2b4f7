"""Rotary frequencies against Hugging Face's, at the positions where settings go wrong (E07)."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from plancc.executor.rope import rope_table
from plancc.ir.errors import BadInput
from plancc.ir.manifest import Rope, RopeScaling

HEAD_DIM, THETA, ORIGINAL = 64, 500000.0, 8192
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"factor": 4.0},
    "yarn steep": {"factor": 16.0, "beta_fast": 40.0, "beta_slow": 2.0, "attention_factor": 0.8},
}


def _theirs(name: str, context: int) -> tuple[torch.Tensor, float]:
    kind, values = name.split()[0], SCALINGS[name]
    rope = {"rope_type": kind, "rope_theta": THETA} | values
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = ORIGINAL
    config = LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, head_dim=HEAD_DIM,
                         max_position_embeddings=ORIGINAL, rope_parameters=rope)  # fmt: skip
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=context)
    return frequencies, factor


def _ours(name: str, context: int) -> tuple[np.ndarray[Any, Any], float]:
    scaling = RopeScaling(kind=name.split()[0], original_context=ORIGINAL, **SCALINGS[name])
    table = rope_table(Rope(theta=THETA, scaling=scaling), rotary_dim=HEAD_DIM,
                       max_context=ORIGINAL, context=context)  # fmt: skip
    return table.inv_freq, table.attention_factor


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_are_those_of_hugging_face_at_the_positions_that_matter(name: str) -> None:
    context = int(ORIGINAL * SCALINGS[name]["factor"])
    (theirs, their_factor), (ours, factor) = _theirs(name, context), _ours(name, context)
    assert factor == pytest.approx(their_factor, rel=1e-12)
    for position in (0, 1, ORIGINAL - 1, ORIGINAL + 1, context - 1):
        # Theirs are float32: an angle may be off by a unit or two of its last place.
        difference = np.abs(ours * position - theirs.double().numpy() * position)
        assert (difference <= 4e-7 * ours * position).all(), position


def test_plain_frequencies_are_powers_of_the_base() -> None:
    table = rope_table(Rope(theta=10000.0), rotary_dim=8, max_context=100, context=100)
    assert np.allclose(table.inv_freq, [1.0, 0.1, 0.01, 0.001], rtol=1e-15)
    assert table.attention_factor == 1.0


@pytest.mark.parametrize("name", SCALINGS)
def test_every_scaling_changes_the_frequencies(name: str) -> None:
    plain = rope_table(Rope(theta=THETA), rotary_dim=HEAD_DIM, max_context=1, context=1).inv_freq
    scaled, _ = _ours(name, ORIGINAL * 4)
    assert not np.allclose(scaled, plain, rtol=1e-3)


def test_dynamic_scaling_leaves_contexts_of_the_trained_length_alone() -> None:
    plain = rope_table(Rope(theta=THETA), rotary_dim=HEAD_DIM, max_context=1, context=1).inv_freq
    assert np.array_equal(_ours("dynamic", ORIGINAL)[0], plain)
    assert np.array_equal(_ours("dynamic", 16)[0], plain)


def test_missing_numbers_are_named() -> None:
    bare = Rope(theta=THETA, scaling=RopeScaling(kind="llama3", factor=8.0))
    with pytest.raises(BadInput, match="low_freq_factor and high_freq_factor"):
        rope_table(bare, rotary_dim=64, max_context=8192, context=8192)
    with pytest.raises(BadInput, match="found 5"):
        rope_table(Rope(theta=THETA), rotary_dim=5, max_context=1, context=1)
