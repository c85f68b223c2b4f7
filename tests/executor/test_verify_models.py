"""Which plans --verify compares, and which of them promise the same bits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, write_checkpoint
from plancc_plans import build_plan, manifest_of

from plancc.executor.preflight import Passed
from plancc.executor.verify_models import (
    inexact_because,
    refuse_other_weights,
    refuse_two_models,
)
from plancc.executor.weights import read_weights
from plancc.ir.errors import Stale
from plancc.ir.layers import DenseMlp
from plancc.ir.plan import Plan

SPEC = TinyLlama(num_layers=3)
Passing = Callable[..., Passed]


@pytest.fixture
def passing(tmp_path: Path) -> Passing:
    """A plan of a checkpoint that differs from SPEC as said."""

    def make(name: str = "toy", cuts: tuple[int, ...] = (0, 3), **changes: Any) -> Passed:
        spec = replace(SPEC, **changes)
        plan = build_plan(manifest_of(write_checkpoint(tmp_path / name, spec), spec), cuts)
        return Passed(plan, read_weights(plan, tmp_path / name), ())

    return make


def edited(passed: Passed, **changes: Any) -> Passed:
    return replace(passed, plan=passed.plan.model_copy(update=changes))


def on_kinds(passed: Passed, *kinds: str) -> Passed:
    devices = zip(passed.plan.devices, kinds, strict=True)
    return edited(
        passed, devices=tuple(one.model_copy(update={"kind": kind}) for one, kind in devices)
    )


def with_tiles(plan: Plan, tiles: int) -> Any:
    mlp = plan.model.layers[1].mlp
    assert isinstance(mlp, DenseMlp)
    layer = plan.model.layers[1].model_copy(update={"mlp": mlp.model_copy(update={"tiles": tiles})})
    return plan.model.model_copy(update={"layers": (plan.model.layers[0], layer, layer)})


def test_one_model_under_two_placements_promises_the_same_bits(passing: Passing) -> None:
    one, other = passing(), passing(cuts=(0, 1, 3))
    refuse_two_models(one.plan, other.plan)
    refuse_other_weights(one, other)
    assert inexact_because(one, other) == ()


def test_another_format_of_the_weights_is_the_same_model_by_distance(passing: Passing) -> None:
    one, other = passing(), passing("toy-bf16", dtype="bfloat16")
    refuse_two_models(one.plan, other.plan)
    refuse_other_weights(one, other)
    dtype, kv_dtype, weights = inexact_because(one, other)
    assert (dtype, kv_dtype) == ("dtype float32 and bfloat16", "KV dtype float32 and bfloat16")
    assert weights.startswith("weights ")


def test_other_weights_of_one_format_are_meant_only_where_it_is_said(passing: Passing) -> None:
    one, other = passing("a model with a long name, the base"), passing("tuned", seed=1)
    with pytest.raises(Stale, match=r"weights \(say --alt-weights .*: \w{16} and \w{16}$"):
        refuse_other_weights(one, other)
    refuse_other_weights(one, other, may_differ=True)
    assert [text.split()[0] for text in inexact_because(one, other)] == ["weights"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_layers": 2}, "number of layers: 3 and 2"),
        ({"num_kv_heads": 1}, r"layers\[0\].mixer.num_kv_heads: 2 and 1"),
        ({"norm_eps": 1e-6}, "geometry.norm_eps: 1e-05 and 1e-06"),
        ({"tied": True}, "a tied head: False and True"),
        ({"vocab_size": 300}, "vocab_size: 320 and 300"),
    ],
)
def test_two_models_are_told_apart_by_what_they_compute(
    passing: Passing, changes: dict[str, Any], said: str
) -> None:
    cuts = (0, changes.get("num_layers", 3))
    with pytest.raises(Stale, match=said):
        refuse_two_models(passing().plan, passing("other", cuts=cuts, **changes).plan)


def test_another_tokenizer_is_another_model(passing: Passing, tmp_path: Path) -> None:
    one, path = passing(), tmp_path / "toy" / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    other = replace(one, weights=read_weights(one.plan, tmp_path / "toy"))
    with pytest.raises(Stale, match=r"tokenizer.json: \w{16} and \w{16}$"):
        refuse_other_weights(one, other, may_differ=True)


def test_bits_are_promised_for_each_layer_on_one_kind_of_device(passing: Passing) -> None:
    one = passing(cuts=(0, 1, 3))
    assert inexact_because(on_kinds(one, "a", "b"), on_kinds(one, "a", "b")) == ()
    assert inexact_because(on_kinds(one, "a", "a"), on_kinds(one, "b", "b")) == (
        "layer 0 on kind a and b",
    )
    assert inexact_because(on_kinds(one, "a", "b"), on_kinds(one, "a", "a")) == (
        "layer 1 on kind b and a",
    )


def test_a_cache_format_and_the_tiles_of_a_sum_change_bits(passing: Passing) -> None:
    one = passing()
    short = edited(one, runtime=one.plan.runtime.model_copy(update={"kv_dtype": "bfloat16"}))
    assert inexact_because(one, short) == ("KV dtype float32 and bfloat16",)
    tiled = edited(one, model=with_tiles(one.plan, 2))
    refuse_two_models(one.plan, tiled.plan)
    (text,) = inexact_because(one, tiled)
    assert text.startswith("tiles of layer 1 ")
