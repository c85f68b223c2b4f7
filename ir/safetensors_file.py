"""Headers of safetensors files, checked to the byte, and the folder that holds them.

Layout of a file: 8 bytes of header length (little-endian), that many bytes of JSON, then the
tensors without gap or overlap. Whatever cannot be read as meant is a BadInput that names the
file, what was expected and what was found; no file is looked for under another name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from plancc.ir.dtype import SAFETENSORS_ITEMSIZE
from plancc.ir.errors import BadInput

LARGEST_HEADER = 100_000_000  # of the format's reference implementation
_LENGTH_BYTES = 8
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a header describes it; `offset` counts from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.bytes


def read_header(path: Path) -> tuple[StoredTensor, ...]:
    """Every tensor of one file, by offset. Raises BadInput where header and file disagree."""
    size, text = _header_text(path)
    entries = _entries(path, text)
    start = _LENGTH_BYTES + len(text)
    tensors = [_tensor(path, name, entry, start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.end, tensor.name))
    _check_cover(path, tensors, start, size)
    return tuple(tensors)


def read_chunks(path: Path, offset: int, num_bytes: int) -> Iterator[bytes]:
    """Bytes [offset, offset + num_bytes) of a file, a few MiB at a time.

    Raises BadInput when the file ends before they do.
    """
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        left = num_bytes
        while left:
            piece = file.read(min(left, _CHUNK_BYTES))
            if not piece:
                raise BadInput(f"{path}: expected {offset + num_bytes} bytes, the file has only "
                               f"{offset + num_bytes - left}")  # fmt: skip
            left -= len(piece)
            yield piece


def same_bytes(folder: Path, one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two stored tensors are alike in dtype, shape and every byte; reads both."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    digests = [hashlib.sha256(), hashlib.sha256()]
    for digest, each in zip(digests, (one, other), strict=True):
        for piece in read_chunks(folder / each.file, each.offset, each.bytes):
            digest.update(piece)
    return digests[0].digest() == digests[1].digest()


def _header_text(path: Path) -> tuple[int, bytes]:
    """The file's size and its header's bytes; never reads more than the file can hold."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            prefix = file.read(_LENGTH_BYTES)
            if len(prefix) < _LENGTH_BYTES:
                raise BadInput(f"{path}: expected at least {_LENGTH_BYTES} bytes of header length, "
                               f"the file has {size}")  # fmt: skip
            length = int.from_bytes(prefix, "little")
            if length > min(size - _LENGTH_BYTES, LARGEST_HEADER):
                raise BadInput(f"{path}: its header is said to have {length} bytes, so that the "
                               f"file has at least {length + _LENGTH_BYTES}; it has {size}"
                               if length > size - _LENGTH_BYTES else
                               f"{path}: expected a header of at most {LARGEST_HEADER} bytes, "
                               f"found {length}")  # fmt: skip
            return size, file.read(length)
    except FileNotFoundError:
        raise BadInput(f"{path}: absent") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot read it: {error.strerror}") from None


def _entries(path: Path, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"{path}: header: expected each key once, found {twice!r} twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: header of {len(text)} bytes is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadInput(f"{path}: header: expected an object, found {type(header).__name__}")
    header.pop("__metadata__", None)
    return header


def _tensor(path: Path, name: str, entry: object, start: int) -> StoredTensor:
    where = f"{path}: tensor {name}"
    if not isinstance(entry, Mapping) or not {"dtype", "shape", "data_offsets"} <= set(entry):
        raise BadInput(f"{where}: expected dtype, shape and data_offsets, found {entry!r}")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in SAFETENSORS_ITEMSIZE:
        raise BadInput(f"{where}: dtype: expected one of {', '.join(SAFETENSORS_ITEMSIZE)}, "
                       f"found {dtype!r}")  # fmt: skip
    if not _are_sizes(shape):
        raise BadInput(f"{where}: shape: expected sizes of 0 or more, found {shape!r}")
    if not _are_sizes(span) or len(span) != 2 or span[0] > span[1]:
        raise BadInput(f"{where}: data_offsets: expected [first, end], found {span!r}")
    expected = prod(shape) * SAFETENSORS_ITEMSIZE[dtype]
    if span[1] - span[0] != expected:
        raise BadInput(f"{where}: {dtype} {shape} is {expected} bytes, its data_offsets {span} "
                       f"hold {span[1] - span[0]}")  # fmt: skip
    return StoredTensor(name, dtype, tuple(shape), path.name, start + span[0], expected)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_cover(path: Path, tensors: list[StoredTensor], start: int, size: int) -> None:
    """Tensors follow each other without gap or overlap, and end where the file ends."""
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            what = "a gap" if tensor.offset > end else "an overlap"
            raise BadInput(f"{path}: tensor {tensor.name}: expected it at byte {end}, found it at "
                           f"{tensor.offset}: {what}")  # fmt: skip
        end = tensor.end
    if end != size:
        raise BadInput(f"{path}: expected {end} bytes (header and {len(tensors)} tensors), "
                       f"the file has {size}")  # fmt: skip
