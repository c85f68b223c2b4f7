"""Edits of a plan document: such as a person makes, and every single value changed to another."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[Any, ...]
Edit = Callable[[dict[str, Any]], None]

_WORDS = {
    "bfloat16": "float32", "float32": "float16", "gloo": "nccl", "staged": "p2p", "local": "p2p",
    "latency": "prefill", "host": "device", "auto": "off", "optimal": "feasible",
    "sampled": "full", "attention": "other", "swiglu": "geglu", "replicated": "owned",
    "owned": "replicated", "hidden": "partial", "partial": "hidden", "step": "hidden",
    "mixer": "mlp", "mlp": "mixer",
}  # fmt: skip
_NAMES = ("name", "device", "address", "plancc", "sha256", "version", "space", "host", "kind",
          "source", "family")  # fmt: skip


def put(*path: Any, value: Any) -> Edit:
    """An edit of one value; a function is applied to what was there."""

    def edit(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value(data[path[-1]]) if callable(value) else value

    return edit


def both(*edits: Edit) -> Edit:
    def edit(data: dict[str, Any]) -> None:
        for one in edits:
            one(data)

    return edit


def more(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def without(name: str, index: int) -> Edit:
    """One item of a list of the plan left out."""
    return lambda data: data[name].pop(index)


def move_bytes(device: str, column: str, amount: int, other: str) -> Edit:
    """Of a device's ledger; sums stay right, the parts do not."""

    def edit(data: dict[str, Any]) -> None:
        ledger = next(row["ledger"] for row in data["devices"] if row["name"] == device)
        ledger[column] += amount
        ledger[other] -= amount

    return edit


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value that is no list and no mapping, with where it stands."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def other_value(path: Path, value: Any) -> Any:
    """Another value that the format takes there, or None where it knows only this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return 2 * value + 0.1
    if isinstance(value, int):
        return value + 1
    if not isinstance(value, str):
        return None
    if path[-1] == "head":
        return "first" if value == "auto" else None
    if path[-1] == "sha256":
        return "9" * 64
    if path[-1] in _NAMES and value not in _WORDS:
        return value + "x"
    return _WORDS.get(value)


def single_edits(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Copies of a plan's data, each with one value changed; its digest and format stay."""
    for path, value in leaves(data):
        other = other_value(path, value)
        if other is None or path[0] in ("digest", "format"):
            continue
        edited = copy.deepcopy(data)
        holder = edited
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = other
        yield path, edited
