"""Safetensors written as a stream: header first, then each tensor's bytes, in constant memory."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path

from plancc.ir.dtype import ITEMSIZE, SAFETENSORS_DTYPE

SHARD_BYTES = 4 * 2**30
_CODES = {ours: theirs for theirs, ours in SAFETENSORS_DTYPE.items()}


@dataclass(frozen=True)
class NewTensor:
    """A tensor to be written; `blocks` makes its bytes anew, piece by piece."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    blocks: Callable[[], Iterable[bytes]]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * ITEMSIZE[self.dtype]


def write_shards(
    folder: Path,
    tensors: Sequence[NewTensor],
    *,
    shard_bytes: int = SHARD_BYTES,
    written: Callable[[int], None] = lambda num_bytes: None,
) -> None:
    """model.safetensors, or shards of at most `shard_bytes` (or one tensor) and their index.

    `written` hears of every piece's bytes.
    """
    shards = list(_shards(tensors, shard_bytes))
    if len(shards) == 1:
        _write_file(folder / "model.safetensors", shards[0], written)
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / file, shard, written)
        weight_map |= {tensor.name: file for tensor in shard}
    total = sum(tensor.num_bytes for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2) + "\n"
    (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _shards(tensors: Sequence[NewTensor], most: int) -> Iterator[list[NewTensor]]:
    shard: list[NewTensor] = []
    for tensor in tensors:
        if shard and sum(each.num_bytes for each in shard) + tensor.num_bytes > most:
            yield shard
            shard = []
        shard.append(tensor)
    yield shard


def _write_file(path: Path, tensors: list[NewTensor], written: Callable[[int], None]) -> None:
    with path.open("xb") as file:
        file.write(_header(tensors))
        for tensor in tensors:
            count = 0
            for block in tensor.blocks():
                file.write(block)
                count += len(block)
                written(len(block))
            assert count == tensor.num_bytes, f"{tensor.name}: {count} of {tensor.num_bytes} bytes"


def _header(tensors: list[NewTensor]) -> bytes:
    """Length and JSON, padded with blanks so that the first tensor is aligned to 8 bytes."""
    ends = list(accumulate(tensor.num_bytes for tensor in tensors))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for tensor, end in zip(tensors, ends, strict=True):
        header[tensor.name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end - tensor.num_bytes, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
