"""Which files of a folder are the model: missing, cut, doubled, stray and stale (L01, L03)."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plancc_checkpoints import TinyLlama, tensor_shapes, write_checkpoint, write_safetensors

from plancc.ir.errors import BadInput
from plancc.ir.safetensors_file import read_header
from plancc.ir.weight_folder import (
    INDEX_FILE,
    index_of,
    read_weight_folder,
    sample_spans,
    weight_index,
)

SPEC = TinyLlama(num_layers=3, num_shards=3)
SHARDS = [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "toy", SPEC)


def refusal(folder: Path) -> str:
    with pytest.raises(BadInput) as caught:
        weight_index(folder)
    return str(caught.value)


def edit_index(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = folder / INDEX_FILE
    data = json.loads(path.read_text())
    edit(data["weight_map"])
    path.write_text(json.dumps(data))


def stored(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    raw = path.read_bytes()
    return {tensor.name: (tensor.dtype, tensor.shape, raw[tensor.offset : tensor.end])
            for tensor in read_header(path)}  # fmt: skip


def test_every_tensor_is_found_once_where_the_index_says(folder: Path) -> None:
    weights = read_weight_folder(folder)
    shapes = tensor_shapes(SPEC)
    assert {tensor.name: tensor.shape for tensor in weights.tensors} == shapes
    home = json.loads((folder / INDEX_FILE).read_text())["weight_map"]
    assert {tensor.name: tensor.file for tensor in weights.tensors} == home
    assert (weights.warnings, weights.strays) == ((), ())


def test_a_deleted_shard_is_named_as_absent(folder: Path) -> None:
    (folder / SHARDS[1]).unlink()
    assert f"names 3 files, 1 absent: {SHARDS[1]}" in refusal(folder)


def test_a_shard_cut_by_one_byte_is_named_with_both_sizes(folder: Path) -> None:
    path = folder / SHARDS[1]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    text = refusal(folder)
    assert SHARDS[1] in text
    assert f"expected {size} bytes" in text
    assert f"the file has {size - 1}" in text


def test_a_shard_cut_inside_its_header_is_named(folder: Path) -> None:
    path = folder / SHARDS[2]
    path.write_bytes(path.read_bytes()[:100])
    text = refusal(folder)
    assert SHARDS[2] in text
    assert "it has 100" in text


def test_a_header_length_of_two_to_the_sixty_is_named(folder: Path) -> None:
    path = folder / SHARDS[0]
    path.write_bytes((2**60).to_bytes(8, "little") + path.read_bytes()[8:])
    text = refusal(folder)
    assert SHARDS[0] in text
    assert str(2**60) in text


def test_an_empty_shard_is_named(folder: Path) -> None:
    (folder / SHARDS[0]).write_bytes(b"")
    text = refusal(folder)
    assert SHARDS[0] in text
    assert "the file has 0" in text


def test_a_stale_index_lists_all_absent_files_and_nothing_is_globbed(folder: Path) -> None:
    names = [f"old-{number}-of-6.safetensors" for number in range(1, 7)]

    def rename(home: dict[str, Any]) -> None:
        for position, tensor in enumerate(home):
            home[tensor] = names[position % 6]

    edit_index(folder, rename)
    text = refusal(folder)
    assert "names 6 files, 6 absent" in text
    assert all(name in text for name in names)
    assert "stale" in text


def test_a_tensor_in_another_shard_than_the_index_says_is_stale(folder: Path) -> None:
    name = next(iter(stored(folder / SHARDS[0])))
    edit_index(folder, lambda home: home.update({name: SHARDS[1]}))
    text = refusal(folder)
    assert f"{name}: expected in {SHARDS[1]}; it lies in {SHARDS[0]}" in text


def test_a_tensor_that_only_the_index_or_only_a_shard_has_is_stale(folder: Path) -> None:
    name = next(iter(stored(folder / SHARDS[0])))
    edit_index(folder, lambda home: home.update({"ghost": home.pop(name)}))
    text = refusal(folder)
    assert f"ghost: expected in {SHARDS[0]}; no file has it" in text
    assert f"{name}: in {SHARDS[0]}, not in the index" in text


@pytest.mark.parametrize("path", ["../x.safetensors", "/etc/x", "a/b.safetensors", "..", "", 3])
def test_an_index_that_leaves_the_folder_is_refused(folder: Path, path: object) -> None:
    shutil.copy(folder / SHARDS[0], folder.parent / "x.safetensors")
    edit_index(folder, lambda home: home.update({next(iter(home)): path}))
    assert f"expected the name of a file in this folder, found {path!r}" in refusal(folder)


def double(folder: Path, *, flip: int | None) -> str:
    """Put a tensor of shard 1 into shard 2 as well, one byte changed or none; its name."""
    first, second = (stored(folder / name) for name in SHARDS[:2])
    name = "model.embed_tokens.weight"
    dtype, shape, data = first[name]
    if flip is not None:
        data = data[:flip] + bytes([data[flip] ^ 1]) + data[flip + 1 :]
    write_safetensors(folder / SHARDS[1], second | {name: (dtype, shape, data)})
    return name


def test_a_tensor_stored_twice_alike_gives_one_warning(folder: Path) -> None:
    before = weight_index(folder)
    name = double(folder, flip=None)
    weights = read_weight_folder(folder)
    (warning,) = weights.warnings
    assert name in warning
    assert SHARDS[0] in warning
    tensor = index_of(weights).tensor(name)
    assert tensor == before.tensor(name)


def test_a_tensor_stored_twice_with_one_other_byte_stops(folder: Path) -> None:
    name = double(folder, flip=7777)
    text = refusal(folder)
    assert f"tensor {name} is stored in {SHARDS[0]} and {SHARDS[1]} with different bytes" in text


def test_a_stray_file_is_left_out_and_listed(folder: Path) -> None:
    before = weight_index(folder)
    extra = TinyLlama(num_layers=3, dtype="float16", seed=9)
    write_checkpoint(folder.parent / "other", extra)
    shutil.copy(folder.parent / "other" / "model.safetensors", folder / "model.safetensors")
    weights = read_weight_folder(folder)
    assert weights.strays == ("model.safetensors",)
    assert index_of(weights) == before


def test_without_an_index_there_must_be_one_file_alone(folder: Path) -> None:
    (folder / INDEX_FILE).unlink()
    text = refusal(folder)
    assert "expected one *.safetensors, found 3" in text
    assert all(shard in text for shard in SHARDS)
    for shard in SHARDS[1:]:
        (folder / shard).unlink()
    assert len(weight_index(folder).tensors) == len(stored(folder / SHARDS[0]))
    (folder / SHARDS[0]).unlink()
    assert "found neither; download the model's *.safetensors here too" in refusal(folder)


@pytest.mark.parametrize("text", ["{}", '{"weight_map": {}}', "[]", "{", '{"weight_map": [1]}'])
def test_an_index_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / INDEX_FILE).write_text(text)
    assert INDEX_FILE in refusal(folder)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "no such model folder" in refusal(tmp_path / "no")


def test_sharding_changes_places_but_no_fingerprint_of_a_tensor(tmp_path: Path) -> None:
    one = weight_index(write_checkpoint(tmp_path / "one", TinyLlama(num_layers=3)))
    three = weight_index(write_checkpoint(tmp_path / "three", SPEC))
    assert {t.name: t.sha256 for t in one.tensors} == {t.name: t.sha256 for t in three.tensors}
    assert one.files == three.files
    assert one.digest() != three.digest()


def test_sampled_and_full_digests_are_of_the_bytes_they_name(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama(num_layers=1))
    raw = (folder / "model.safetensors").read_bytes()
    sampled, full = weight_index(folder), weight_index(folder, "full")
    assert sampled.fingerprint == "sampled"
    sizes = set()
    for tensor in sampled.tensors:
        data = raw[tensor.offset : tensor.offset + tensor.bytes]
        sizes.add(len(data) > 12288)
        middle = (len(data) - 4096) // 2
        parts = data[:4096] + data[middle : middle + 4096] + data[-4096:]
        expected = data if len(data) <= 12288 else parts
        assert tensor.sha256 == hashlib.sha256(expected).hexdigest()
        other = full.tensor(tensor.name)
        assert other is not None
        assert other.sha256 == hashlib.sha256(data).hexdigest()
    assert sizes == {True, False}


def test_samples_cover_a_small_tensor_whole_and_three_places_of_a_large_one() -> None:
    assert sample_spans(0) == ((0, 0),)
    assert sample_spans(12288) == ((0, 12288),)
    assert sample_spans(12289) == ((0, 4096), (4096, 8192), (8193, 12289))
    assert sample_spans(10**9)[1] == (499997952, 500002048)


def test_sampling_reads_no_more_than_its_samples(folder: Path) -> None:
    seen: list[int] = []
    index = weight_index(folder, hashed=seen.append)
    assert sum(seen) == sum(min(tensor.bytes, 12288) for tensor in index.tensors)
    seen.clear()
    weight_index(folder, "full", hashed=seen.append)
    assert sum(seen) == sum(tensor.bytes for tensor in index.tensors)


def test_small_files_belong_to_the_fingerprint(folder: Path) -> None:
    before = weight_index(folder)
    assert [entry.file for entry in before.files] == [
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json"]  # fmt: skip
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    after = weight_index(folder)
    assert after.files[-1].file == "chat_template.jinja"
    assert after.files[-1].sha256 == hashlib.sha256(b"{{ messages }}").hexdigest()
    assert after.digest() != before.digest()


@pytest.mark.parametrize("part", ["first", "middle", "last"])
def test_a_byte_changed_where_a_sample_lies_changes_the_digest(folder: Path, part: str) -> None:
    before = weight_index(folder)
    tensor = before.tensor("model.embed_tokens.weight")
    assert tensor is not None
    assert tensor.bytes > 12288
    at = {"first": 0, "middle": (tensor.bytes - 4096) // 2, "last": tensor.bytes - 1}[part]
    path = folder / tensor.file
    raw = bytearray(path.read_bytes())
    raw[tensor.offset + at] ^= 1
    path.write_bytes(bytes(raw))
    assert weight_index(folder).digest() != before.digest()
