"""From the words on the command line to an Ask; every mistake names its flag."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from plancc.ir.ask import Ask
from plancc.ir.errors import BadInput


def ask_from_flags(flags: Mapping[str, Any]) -> Ask:
    """The ask of flags by field name; None or () means not said. Raises BadInput by flag."""
    said = {name: value for name, value in flags.items() if value not in (None, ())}
    values = {name: _READERS.get(name, _as_is)(name, value) for name, value in said.items()}
    try:
        return Ask.model_validate(values)
    except ValidationError as error:
        raise BadInput("\n".join(_describe(item) for item in error.errors())) from None


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _describe(item: Any) -> str:
    message = str(item["msg"].removeprefix("Value error, "))
    if message.startswith("--"):  # of several flags, and it names them
        return message
    found = "" if "found" in message else f", found {item['input']!r}"
    return f"{flag_of(str(item['loc'][0])) if item['loc'] else 'ask'}: {message}{found}"


def _as_is(name: str, value: Any) -> Any:
    return value


def _split(name: str, value: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts):
        raise BadInput(f"{flag_of(name)}: expected names parted by commas, found {value!r}")
    return parts


def _whole_numbers(name: str, value: str) -> tuple[int, ...]:
    return tuple(_whole(name, part) for part in _split(name, value))


def _whole(name: str, text: str) -> int:
    if not text.isdigit():
        raise BadInput(f"{flag_of(name)}: expected a whole number, found {text!r}")
    return int(text)


def _pairs(name: str, items: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals and value):
            raise BadInput(f"{flag_of(name)}: expected BLOCK=DEVICE, found {item!r}")
        if pairs.get(key, value) != value:
            raise BadInput(f"{flag_of(name)} {key}: both {pairs[key]} and {value} were asked")
        pairs[key] = value
    return pairs


def _workload(name: str, value: str) -> dict[str, int]:
    pairs = [part.partition("=") for part in _split(name, value)]
    wrong = [key for key, _, _ in pairs if key not in ("prompt", "output", "streams")]
    if wrong:
        raise BadInput(
            f"{flag_of(name)}: expected prompt=..,output=..[,streams=..], found {value!r}"
        )
    return {key: _whole(name, number) for key, _, number in pairs}


def _share(name: str, value: str) -> float:
    """'3%' or '0.03'."""
    try:
        return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise BadInput(f"{flag_of(name)}: expected 3% or 0.03, found {value!r}") from None


def _tp(name: str, value: str) -> str | int:
    return value if value in ("auto", "off") else _whole(name, value)


def _flatten(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for value in values for part in _split(name, value))


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "devices": _split,
    "stage_layers": _whole_numbers,
    "pin": _pairs,
    "workload": _workload,
    "margin": _share,
    "tp": _tp,
    "without": _flatten,
}
