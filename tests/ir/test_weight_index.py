"""The index of a checkpoint: one entry a name, one digest whatever the order."""

import random

import pytest
from pydantic import ValidationError

from plancc.ir.weight_index import TensorEntry, WeightIndex


def entry(name: str, offset: int = 0, sha256: str = "0" * 64) -> TensorEntry:
    return TensorEntry(name=name, dtype="F32", shape=(2, 3), file="model.safetensors",
                       offset=offset, bytes=24, sha256=sha256)  # fmt: skip


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="found 'a' twice"):
        WeightIndex(tensors=(entry("a"), entry("b"), entry("a", 24)))


def test_the_digest_does_not_depend_on_the_order_of_tensors() -> None:
    entries = [entry(f"t{number}", 24 * number) for number in range(20)]
    digest = WeightIndex(tensors=tuple(entries)).digest()
    random.Random(5).shuffle(entries)
    assert WeightIndex(tensors=tuple(entries)).digest() == digest


def test_the_digest_tells_weights_kind_and_place_apart() -> None:
    indexes = [
        WeightIndex(tensors=(entry("a"),)),
        WeightIndex(tensors=(entry("b"),)),
        WeightIndex(tensors=(entry("a", 8),)),
        WeightIndex(tensors=(entry("a", 0, "1" * 64),)),
        WeightIndex(tensors=(entry("a"),), fingerprint="full"),
    ]
    assert len({index.digest() for index in indexes}) == len(indexes)


def test_lookup_by_name() -> None:
    index = WeightIndex(tensors=(entry("a"), entry("b", 24)))
    assert index.tensor("b") == entry("b", 24)
    assert index.tensor("c") is None
    assert entry("b", 24).end == 48
