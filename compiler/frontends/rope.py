"""Hugging Face's rotary settings, in any spelling, as the manifest's Rope.

Old files have `rope_theta` beside `rope_scaling: {type: ...}`; newer ones say `rope_type`, and
transformers 5 writes both into `rope_parameters`, where each layer type may have its own set:

    rope_parameters: {full_attention: {rope_type: yarn, ...}, sliding_attention: {...}}

Kinds and keys that are not known are refused by name: an ignored one is silent nonsense.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from plancc.ir.document import describe
from plancc.ir.errors import BadInput
from plancc.ir.manifest import Rope, RopeScaling

DEFAULT_ROPE = "default"
DEFAULT_THETA = 10000.0
_UNSCALED = ("none", "default")
_COMMON = {"type", "rope_type", "rope_theta", "partial_rotary_factor"}
_WORDS = {"type", "rope_type", "truncate", "finetuned"}
_ORIGINAL = "original_max_position_embeddings"
_KEYS: dict[str, set[str]] = {
    "none": set(),
    "default": set(),
    "linear": {"factor", _ORIGINAL},
    "dynamic": {"factor", _ORIGINAL},
    "llama3": {"factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", _ORIGINAL, "beta_fast", "beta_slow", "attention_factor", "mscale",
             "mscale_all_dim", "truncate", "finetuned"},
}  # fmt: skip
_NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}


@dataclass(frozen=True)
class RopeReading:
    """Rotary settings by name, the longest context they reach, and what a reader should know."""

    ropes: dict[str, Rope]
    max_context: int
    notes: tuple[str, ...]


def read_rope(
    config: Mapping[str, Any], *, where: str, head_dim: int, max_position: int
) -> RopeReading:
    """The config's rotary settings. Raises BadInput for an unknown kind, key or missing number."""
    notes: list[str] = []
    ropes = {}
    for name, values in _sets(config, where).items():
        place = where if name == DEFAULT_ROPE else f"{where}: {name}"
        ropes[name] = _rope(values, place, head_dim, max_position, notes)
    reaches = [reach(rope, max_position) for rope in ropes.values()]
    if reaches[0] != max_position or len(set(reaches)) > 1:
        notes.append(f"max_context {max(reaches)}: rotary scaling reaches beyond "
                     f"max_position_embeddings {max_position}")  # fmt: skip
    return RopeReading(ropes, max(reaches), tuple(dict.fromkeys(notes)))


def reach(rope: Rope, max_position: int) -> int:
    """Longest context: factor x original, but for llama3, whose max_position counts it already."""
    scaling = rope.scaling
    if scaling is None or scaling.kind == "llama3":
        return max_position
    return int(scaling.factor * (scaling.original_context or max_position))


def _sets(config: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """One plain dictionary a layer type, `rope_theta` and the fraction inside."""
    old, new = config.get("rope_scaling"), config.get("rope_parameters")
    if old and new and old != new:
        raise BadInput(f"{where}: fields rope_scaling and rope_parameters differ: {old!r} and "
                       f"{new!r}; remove one")  # fmt: skip
    given = new or old or {}
    if not isinstance(given, Mapping):
        raise BadInput(f"{where}: field rope_scaling: expected a mapping, found {given!r}")
    outer = {
        key: config[key]
        for key in ("rope_theta", "partial_rotary_factor", _ORIGINAL)
        if config.get(key) is not None
    }
    nested = [value for value in given.values() if isinstance(value, Mapping)]
    if nested and len(nested) == len(given):
        return {name: outer | dict(values) for name, values in given.items()}
    return {DEFAULT_ROPE: outer | dict(given)}


def _rope(
    values: Mapping[str, Any], where: str, head_dim: int, max_position: int, notes: list[str]
) -> Rope:
    kind = _kind(values, where)
    _check_numbers(values, where)
    if values.get("rope_theta") is None:
        notes.append(f"rope_theta is absent: {DEFAULT_THETA:g}, the architecture's default")
    fraction = values.get("partial_rotary_factor") or 1.0
    try:
        return Rope(
            theta=values.get("rope_theta") or DEFAULT_THETA,
            rotary_dim=None if fraction == 1.0 else int(head_dim * fraction),
            scaling=_scaling(kind, values, where, max_position, notes),
        )
    except ValidationError as error:
        raise BadInput(describe(error, f"{where}: rope")) from None


def _kind(values: Mapping[str, Any], where: str) -> str:
    """The scaling kind; `type` and `rope_type` must agree where both are given."""
    given = [values[key] for key in ("rope_type", "type") if values.get(key) is not None]
    if len(set(given)) > 1:
        raise BadInput(f"{where}: rope_type {given[0]!r} and type {given[1]!r} differ; remove one")
    kind = given[0] if given else "default"
    if kind not in _KEYS:
        raise BadInput(f"{where}: rope_type: expected one of {', '.join(_KEYS)}, found {kind!r}")
    extra = set() if kind in _UNSCALED else _KEYS[kind]
    unknown = sorted(set(values) - _COMMON - extra - {_ORIGINAL})
    unknown = [key for key in unknown if values[key] is not None]
    if unknown:
        raise BadInput(f"{where}: rope_type {kind} has no parameter {', '.join(unknown)} that "
                       f"plancc knows; it would be ignored silently")  # fmt: skip
    return str(kind)


def _check_numbers(values: Mapping[str, Any], where: str) -> None:
    for key in sorted(set(values) - _WORDS):
        value = values[key]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < value < math.inf):
            raise BadInput(f"{where}: rope: field {key}: expected a number above 0, "
                           f"found {value!r}")  # fmt: skip


def _scaling(
    kind: str, values: Mapping[str, Any], where: str, max_position: int, notes: list[str]
) -> RopeScaling | None:
    if kind in _UNSCALED:
        return None
    missing = [key for key in _NEEDED[kind] if values.get(key) is None]
    if missing:
        raise BadInput(f"{where}: rope_type {kind} needs {', '.join(missing)}, found none")
    if values.get("truncate") is False:
        raise BadInput(f"{where}: rope_type yarn with truncate: false is not supported")
    original = values.get(_ORIGINAL)
    if original is None and kind in ("yarn", "dynamic", "linear"):
        original = max_position
        if kind == "yarn":
            notes.append(f"yarn without {_ORIGINAL}: max_position_embeddings {max_position} "
                         f"stands in for it")  # fmt: skip
    fields = {"kind": kind, "factor": values["factor"], "original_context": original}
    if kind == "llama3":
        fields |= {key: values[key] for key in ("low_freq_factor", "high_freq_factor")}
    if kind == "yarn":
        fields |= _yarn_fields(values)
    return RopeScaling.model_validate(fields)


def _yarn_fields(values: Mapping[str, Any]) -> dict[str, float]:
    """Defaults made explicit: 32, 1, and 0.1 ln(factor) + 1 (YaRN, section 3.4)."""
    factor = values["factor"]
    attention = values.get("attention_factor")
    if attention is None:
        mscale, all_dim = values.get("mscale"), values.get("mscale_all_dim")
        attention = _mscale(factor, mscale or 1.0) if mscale and all_dim else _mscale(factor, 1.0)
        if mscale and all_dim:
            attention /= _mscale(factor, all_dim)
    return {
        "beta_fast": values.get("beta_fast") or 32.0,
        "beta_slow": values.get("beta_slow") or 1.0,
        "attention_factor": attention,
    }


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
