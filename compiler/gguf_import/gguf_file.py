"""A GGUF file, opened: typed fields, and tensors whose bytes lie inside the file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plancc.ir.errors import BadInput

_MAGIC = b"GGUF"


@dataclass(frozen=True)
class StoredRows:
    """One tensor: `data` is a read-only view of the file, one row of stored bytes or numbers a row.

    `shape` is that of the dequantised tensor, rows first.
    """

    name: str
    kind: str  # GGML's name of the number format
    shape: tuple[int, ...]
    data: Any


@dataclass(frozen=True)
class GgufFile:
    path: Path
    fields: Mapping[str, Any]  # a gguf.ReaderField each
    tensors: Mapping[str, StoredRows]

    def get(self, key: str, default: Any = None) -> Any:
        """A field's value as plain data, or `default` where the file does not have it."""
        field = self.fields.get(key)
        return default if field is None else field.contents()

    def need(self, key: str) -> Any:
        """A field's value. Raises BadInput when it is absent."""
        value = self.get(key)
        if value is None:
            raise BadInput(f"{self.path}: field {key}: missing")
        return value


def open_gguf(path: Path) -> GgufFile:
    """The file's fields and tensors; no weight is read. Raises BadInput for anything else."""
    _check_magic(path)
    try:
        reader = _reader(path)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError) as error:
        raise BadInput(f"{path}: not a whole GGUF file ({path.stat().st_size} bytes): "
                       f"{error}") from None  # fmt: skip
    _check_end(path, reader)
    return GgufFile(
        path,
        fields=reader.fields,
        tensors={
            tensor.name: StoredRows(
                tensor.name,
                tensor.tensor_type.name,
                tuple(reversed(tensor.shape.tolist())),
                tensor.data,
            )
            for tensor in reader.tensors
        },
    )


def _reader(path: Path) -> Any:
    """gguf's reader over a plain array: it cuts two views of the file for each word, and from a
    memmap they cost three times as much.
    """
    import gguf
    import numpy as np

    class Reader(gguf.GGUFReader):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    return Reader(path)


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            found = file.read(4)
    except OSError as error:
        raise BadInput(f"{path}: cannot read the GGUF file: {error.strerror}") from None
    if found != _MAGIC:
        raise BadInput(f"{path}: not a GGUF file: expected it to begin with {_MAGIC!r}, "
                       f"found {found!r}")  # fmt: skip


def _check_end(path: Path, reader: Any) -> None:
    """A whole file of a whole model: every tensor's bytes are there, and no part is elsewhere."""
    size = path.stat().st_size
    for tensor in reader.tensors:
        end = tensor.data_offset + tensor.n_bytes
        if end > size:
            raise BadInput(f"{path}: cut short: tensor {tensor.name} ends at byte {end}, the file "
                           f"has {size}")  # fmt: skip
    field = reader.fields.get("split.count")
    if field is not None and field.contents() > 1:
        raise BadInput(f"{path}: one of {field.contents()} parts; expected a whole file "
                       f"(llama-gguf-split --merge makes one)")  # fmt: skip


def layer_of(name: str) -> int | None:
    """The layer's index in a GGUF tensor name, None for a tensor of no layer."""
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match.group(1)) if match else None
