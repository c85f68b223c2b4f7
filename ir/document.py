"""Reading a document from a file, with errors that name file, field, found and expected."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from plancc.ir.errors import BadInput


class Frozen(BaseModel):
    """Base of every document part: immutable, and a field we do not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


M = TypeVar("M", bound=BaseModel)


def parse_document(model: type[M], data: object, where: str, format_name: str) -> M:
    """`data` as a `model`; every problem at once, each with its field. Raises BadInput."""
    if not isinstance(data, Mapping):
        raise BadInput(f"{where}: expected a {format_name} document, found {type(data).__name__}")
    found = data.get("format")
    if found != format_name:
        raise BadInput(f"{where}: field format: expected {format_name!r}, found {found!r}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise BadInput(describe(error, where)) from None


def describe(error: ValidationError, where: str) -> str:
    """One line a problem: file, field, what is wrong, what was found.

    Layers that are wrong alike, as `repeat` makes them, share a line.
    """
    items = error.errors()
    wrong_inside = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        if item["type"] == "too_short" and item["loc"] in wrong_inside:
            continue  # a list that lost its wrong items is not short as well
        place = tuple("*" if isinstance(part, int) else part for part in item["loc"])
        key = (place, item["msg"]) if "layers" in place else (item["loc"], item["msg"])
        groups.setdefault(key, []).append(item)
    return "\n".join(f"{where}: {_problem(found[0], len(found) - 1)}" for found in groups.values())


def _problem(item: Any, others: int) -> str:
    """A message of our own about the whole document names its field itself."""
    message = item["msg"].removeprefix("Value error, ")
    field = "field " + ".".join(str(part) for part in item["loc"])
    if not item["loc"]:
        return f"field {message}"
    field += f" (and {others} more alike)" if others else ""
    if item["type"] == "missing":
        return f"{field}: missing"
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown field"
    found = "" if "found" in message else f", found {_short(item['input'])}"
    return f"{field}: {message}{found}"


def read_text(path: Path, what: str) -> str:
    """A file's text. Raises BadInput when it is absent, a folder or not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such {what}") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: expected a {what}, found a folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot read the {what}: {error}") from None


def read_yaml(path: Path, what: str) -> object:
    """Plain data of a YAML file. Raises BadInput with the line of a syntax error."""
    import yaml  # only these commands pay for it

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc,valid-type]
        """A key written twice is an error: YAML readers keep the last one silently."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if key.value in seen and key.tag.endswith(":str"):
                    raise yaml.constructor.ConstructorError(
                        None, None, f"expected each key once, found {key.value!r} twice",
                        key.start_mark)  # fmt: skip
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(read_text(path, what), Loader=Loader)
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {_one_line(error)}") from None


def read_json(path: Path, what: str) -> object:
    """Plain data of a JSON file. Raises BadInput with the line of a syntax error."""
    try:
        return json.loads(read_text(path, what))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from None


def _one_line(error: Exception) -> str:
    """PyYAML tells of a place as `in "<unicode string>", line 3, column 1:` and draws it below."""
    lines = [
        line.strip() for line in str(error).replace('in "<unicode string>", ', "at ").split("\n")
    ]
    return " ".join(line for line in lines if line)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
