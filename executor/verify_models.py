"""--verify: may two plans be compared, and do they promise the same bits?

They may where both are of one architecture and one tokenizer, in whatever format either stores its
weights. The same bits are promised for the same weights in one number format and one cache format,
each layer on one kind of device.
"""

from collections.abc import Iterator
from typing import Any

from plancc.executor.preflight import Passed
from plancc.ir.errors import Stale
from plancc.ir.layers import num_tiles
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Plan

_STORED = {"weight_bytes", "kv_bytes_per_token", "expert_bytes", "shared_bytes", "uncut_bytes",
           "tiles", "group", "fused"}  # fmt: skip
"""What a layer says of bytes and of how they are cut, not of what is computed."""
_TOLD = 4
Pair = tuple[str, str, str]


def refuse_two_models(one: Plan, other: Plan) -> None:
    """Raises Stale where the plans are of models that compute different things."""
    left, right = _facts(one.model), _facts(other.model)
    keys = [key for key in dict.fromkeys((*left, *right)) if left.get(key) != right.get(key)]
    found = [f"{key}: {left.get(key)} and {right.get(key)}" for key in keys]
    more = len(found) - _TOLD
    _refuse(found[:_TOLD] + ([f"and {more} more"] if more > 0 else []))


def refuse_other_weights(one: Passed, other: Passed, *, may_differ: bool = False) -> None:
    """Raises Stale where token ids mean different things, or weights differ and not for a format.

    may_differ: other weights in one number format are meant, since they were asked for by name.
    """
    found = []
    names = [{file.file: file.sha256 for file in passed.weights.index.files}
             for passed in (one, other)]  # fmt: skip
    if all("tokenizer.json" in files for files in names):
        found.append(_hashes("tokenizer.json", *(files["tokenizer.json"] for files in names)))
    if one.plan.model.dtype == other.plan.model.dtype and not may_differ:
        hint = "weights (say --alt-weights DIR where others are meant)"
        found.append(_hashes(hint, one.weights.sha256, other.weights.sha256))
    _refuse([f"{what}: {a} and {b}" for what, a, b in found if a != b])


def _refuse(found: list[str]) -> None:
    if found:
        raise Stale(tuple(f"--verify compares plans of one model: {text}" for text in found))


def inexact_because(one: Passed, other: Passed) -> tuple[str, ...]:
    """Why the plans promise no equal bits; () where they do."""
    a, b = one.plan, other.plan
    pairs = [
        ("dtype", a.runtime.dtype, b.runtime.dtype),
        ("KV dtype", a.runtime.kv_dtype, b.runtime.kv_dtype),
        _hashes("weights", one.weights.sha256, other.weights.sha256),
        *_kind_pairs(a, b),
        *_tile_pairs(a, b),
    ]
    return tuple(f"{what} {left} and {right}" for what, left, right in pairs if left != right)


def _facts(model: ModelShape) -> dict[str, Any]:
    """What is computed, in plain data by name: nothing of names, formats and bytes."""
    facts: dict[str, Any] = {
        "family": model.family,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "number of layers": len(model.layers),
        "a tied head": model.has_tied_head,
    }
    if model.geometry is not None:
        facts |= {f"geometry.{key}": value for key, value in model.geometry.model_dump().items()}
    for index, layer in enumerate(model.layers):
        facts[f"layers[{index}].kv_from"] = layer.kv_from
        for name, part in (("mixer", layer.mixer), ("mlp", layer.mlp)):
            rows = part.model_dump(exclude=_STORED) if part else {}
            facts |= {f"layers[{index}].{name}.{key}": value for key, value in rows.items()}
    return facts


def _hashes(what: str, one: str, other: str) -> Pair:
    return what, one[:16], other[:16]


def _kind_pairs(one: Plan, other: Plan) -> Iterator[Pair]:
    """Kinds sum in different ways: the first layer, or end, that is on two of them."""
    places = zip(_kinds(one), _kinds(other), strict=True)
    for name, (left, right) in zip(_places(one), places, strict=True):
        if left != right:
            yield f"{name} on kind", left, right
            return


def _places(plan: Plan) -> list[str]:
    return [f"layer {index}" for index in range(len(plan.model.layers))] + ["head"]


def _kinds(plan: Plan) -> list[str]:
    """The kind of device of each layer, then of the head. A group is of one kind."""
    kinds, head = dict[int, str](), ""
    for stage in plan.stages:
        kind = plan.device(stage.ranks[0].device).kind
        kinds |= dict.fromkeys(range(*stage.layers), kind)
        head = kind if "head" in stage.blocks else head
    return [kinds[index] for index in sorted(kinds)] + [head]


def _tile_pairs(one: Plan, other: Plan) -> Iterator[Pair]:
    """An MLP is summed by its tiles."""
    for index, layers in enumerate(zip(one.model.layers, other.model.layers, strict=True)):
        left, right = (str(num_tiles(layer)) for layer in layers)
        if left != right:
            yield f"tiles of layer {index}", left, right
            return
