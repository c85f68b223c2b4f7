"""Headers are read as the format's own library reads them, and nothing less than whole passes."""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plancc_checkpoints import TinyLlama, write_checkpoint, write_safetensors
from safetensors.numpy import load_file

from plancc.ir.errors import BadInput
from plancc.ir.safetensors_file import read_chunks, read_header, same_bytes


def refusal(path: Path) -> str:
    with pytest.raises(BadInput) as caught:
        read_header(path)
    return str(caught.value)


def write_raw(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def entry(first: int, end: int, shape: list[int], dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}


def test_a_header_gives_what_the_safetensors_library_gives(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "toy", TinyLlama(dtype="float16", tied=True))
    path = folder / "model.safetensors"
    expected = load_file(path)
    tensors = read_header(path)
    assert {tensor.name for tensor in tensors} == set(expected)
    raw = path.read_bytes()
    for tensor in tensors:
        values = expected[tensor.name]
        assert (tensor.dtype, tensor.shape) == ("F16", values.shape)
        assert raw[tensor.offset : tensor.end] == values.tobytes()
    assert max(tensor.end for tensor in tensors) == len(raw)


def test_zero_size_tensors_and_scalars_are_fine(tmp_path: Path) -> None:
    header = {"none": entry(0, 0, [0, 7]), "one": entry(0, 4, [], "F32")}
    tensors = read_header(write_raw(tmp_path / "a.safetensors", header, b"\0" * 4))
    assert [(tensor.name, tensor.bytes) for tensor in tensors] == [("none", 0), ("one", 4)]


@pytest.mark.parametrize(
    ("header", "data", "expected"),
    [
        ({"a": entry(0, 4, [4]), "b": entry(4, 8, [4])}, 9, "expected 136 bytes"),
        ({"a": entry(0, 4, [4]), "b": entry(5, 9, [4])}, 9, "at byte 132, found it at 133: a gap"),
        ({"a": entry(0, 4, [4]), "b": entry(3, 7, [4])}, 7, "found it at 131: an overlap"),
        ({"a": entry(4, 8, [4])}, 8, "a gap"),
        ({"a": entry(0, 4, [5])}, 4, "U8 [5] is 5 bytes, its data_offsets [0, 4] hold 4"),
        ({"a": entry(0, 4, [4], "F4")}, 4, "dtype: expected one of F64, F32"),
        ({"a": entry(0, 4, [-4])}, 4, "shape: expected sizes of 0 or more, found [-4]"),
        ({"a": entry(0, 4, [True, 4])}, 4, "shape: expected sizes of 0 or more"),
        ({"a": entry(4, 0, [4])}, 4, "data_offsets: expected [first, end], found [4, 0]"),
        ({"a": {"dtype": "U8", "shape": [4]}}, 4, "expected dtype, shape and data_offsets"),
        ([1], 0, "header: expected an object, found list"),
        (b"{not json", 0, "header of 9 bytes is not JSON"),
        (b'{"a": {}, "a": {}}', 0, "expected each key once, found 'a' twice"),
        (b"[" * 50000, 0, "is not JSON"),
    ],
)
def test_a_header_that_contradicts_itself_or_the_file_is_refused(
    tmp_path: Path, header: object, data: int, expected: str
) -> None:
    path = write_raw(tmp_path / "bad.safetensors", header, b"\0" * data)
    text = refusal(path)
    assert str(path) in text
    assert expected in text


def test_each_cut_of_a_file_is_refused_with_expected_and_actual_bytes(tmp_path: Path) -> None:
    path = tmp_path / "whole.safetensors"
    write_safetensors(path, {"a": ("F32", (3,), bytes(12)), "b": ("BF16", (2,), bytes(4))})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert f"{size}" in refusal(path), size
    path.write_bytes(whole + b"\0")
    assert f"expected {len(whole)} bytes" in refusal(path)


def test_a_header_of_two_to_the_sixty_bytes_is_refused_unread(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "a.safetensors", {}, length=2**60)
    assert f"said to have {2**60} bytes" in refusal(path)
    assert "it has 10" in refusal(path)


def test_an_absent_and_an_empty_file_are_told_apart(tmp_path: Path) -> None:
    assert "absent" in refusal(tmp_path / "no.safetensors")
    (tmp_path / "empty.safetensors").touch()
    assert "the file has 0" in refusal(tmp_path / "empty.safetensors")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64), st.one_of(st.none(), st.integers(0, 2**64 - 1)))
def test_any_bytes_are_read_or_refused_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, length: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    write_raw(path, text, length=length)
    with suppress(BadInput):
        read_header(path)


def test_same_bytes_sees_one_changed_byte(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, 5_000_000, dtype=np.uint8)
    other = data.copy()
    other[4_500_000] ^= 1
    for name, values in (("a", data), ("b", data), ("c", other)):
        tensors = {"x": ("U8", values.shape, values.tobytes())}
        write_safetensors(tmp_path / f"{name}.safetensors", tensors)
    a, b, c = (read_header(tmp_path / f"{name}.safetensors")[0] for name in "abc")
    assert same_bytes(tmp_path, a, b)
    assert not same_bytes(tmp_path, a, c)
    assert b"".join(read_chunks(tmp_path / "c.safetensors", c.offset, c.bytes)) == other.tobytes()


def test_reading_beyond_the_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(BadInput, match=r"expected 5 bytes, the file has only 3"):
        list(read_chunks(tmp_path / "short", 1, 4))
