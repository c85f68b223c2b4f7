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
    """One line a problem: file, field, what is wrong, what was found."""
    lines = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"]) or "(document)"
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            lines.append(f"{where}: field {field}: missing")
        elif item["type"] == "extra_forbidden":
            lines.append(f"{where}: field {field}: unknown field")
        elif "found" in message:
            lines.append(f"{where}: field {field}: {message}")
        else:
            lines.append(f"{where}: field {field}: {message}, found {_short(item['input'])}")
    return "\n".join(lines)


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

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(read_text(path, what), Loader=loader)
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {error}") from None


def read_json(path: Path, what: str) -> object:
    """Plain data of a JSON file. Raises BadInput with the line of a syntax error."""
    try:
        return json.loads(read_text(path, what))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
