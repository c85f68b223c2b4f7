"""JSON Schemas of the three documents: generated, fresh in the repository, and of use."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plancc_examples import three_devices, tiny_manifest, tiny_plan

from plancc.compiler.schemas import DOCUMENTS, schema_file, schema_of, schema_text

FOLDER = Path(__file__).resolve().parent.parent.parent / "plans" / "schemas"


def example(name: str) -> Any:
    """The document as a file holds it."""
    documents = {
        "model": {"format": "plancc.model/1", **tiny_manifest().model_dump(mode="json")},
        "topology": three_devices().model_dump(mode="json", by_alias=True, exclude_none=True),
        "plan": tiny_plan().data(),
    }
    return json.loads(json.dumps(documents[name]))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schema_in_the_repository_is_fresh(name: str) -> None:
    path = schema_file(FOLDER, name)
    assert path.read_text() == schema_text(name), f"run: plancc schema {name} > {path}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_takes_its_document(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(example(name), schema)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_refuses_an_unknown_field_and_a_missing_format(name: str) -> None:
    schema = schema_of(name)
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(example(name) | {"colour": "red"}, schema)
    without = example(name)
    del without["format"]
    with pytest.raises(jsonschema.ValidationError, match="format"):
        jsonschema.validate(without, schema)


def test_a_hand_written_manifest_may_repeat_layers_and_say_sizes_in_words() -> None:
    document = {
        "format": "plancc.model/1", "name": "m", "dtype": "bfloat16", "hidden_size": 64,
        "max_context": 128, "layers": [
            {"repeat": 4, "pattern": [
                {"mixer": {"kind": "other", "weight_bytes": "1.5 MiB"}},
            ]},
        ],
    }  # fmt: skip
    jsonschema.validate(document, schema_of("model"))
