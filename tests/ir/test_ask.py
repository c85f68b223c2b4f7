"""The ask: what was not said is filled in from the model, and then recorded."""

import pytest
from pydantic import ValidationError

from plancc.ir.ask import Ask


@pytest.mark.parametrize(
    ("max_context", "context", "prompt"), [(131072, 8192, 4096), (2048, 2048, 2048)]
)
def test_defaults_follow_the_model(max_context: int, context: int, prompt: int) -> None:
    filled = Ask().filled(max_context, "bfloat16")
    assert (filled.context, filled.prompt, filled.kv_dtype) == (context, prompt, "bfloat16")


def test_what_was_said_is_kept() -> None:
    filled = Ask(context=100, prompt=7, kv_dtype="float32").filled(131072, "bfloat16")
    assert (filled.context, filled.prompt, filled.kv_dtype) == (100, 7, "float32")


def test_filling_in_twice_changes_nothing() -> None:
    once = Ask(slots=3).filled(4096, "float16")
    assert once.filled(4096, "float16") == once


@pytest.mark.parametrize(
    "flags",
    [
        {"context": 0},
        {"slots": 0},
        {"devices": ()},
        {"margin": -0.1},
        {"margin": 1.0},
        {"margin": float("nan")},
        {"tp": 0},
        {"tp": "on"},
        {"objective": "speed"},
        {"stage_layers": (0, 3)},
        {"head": "middle"},
        {"speed": 3},
    ],
)
def test_what_cannot_be_asked_is_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Ask.model_validate(flags)
