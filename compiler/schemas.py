"""JSON Schemas of the three documents, generated from what reads them."""

from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from plancc.ir.canonical import to_json
from plancc.ir.manifest import ModelManifest
from plancc.ir.plan import Plan
from plancc.ir.topology import Topology

DOCUMENTS: dict[str, type[BaseModel]] = {
    "model": ModelManifest,
    "topology": Topology,
    "plan": Plan,
}


def schema_of(name: str) -> dict[str, Any]:
    """The schema of what a file may hold; `format` must be said in every file."""
    document = DOCUMENTS[name]
    schema = _untitled(document.model_json_schema(by_alias=True, mode="validation"))
    schema["required"] = ["format", *schema.get("required", ())]
    (format_name,) = get_args(document.model_fields["format"].annotation)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format_name,
        **schema,
    }


def _untitled(value: Any) -> Any:
    """Without the titles that only say a field's name again; a property named title stays."""
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _untitled(item)
        for key, item in value.items()
        if not (key == "title" and isinstance(item, str))
    }


def schema_text(name: str) -> str:
    return to_json(schema_of(name))


def schema_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.schema.json"
