"""The fingerprinted list of tensors of a checkpoint. It does not depend on any placement."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from plancc.ir.canonical import sha256_of
from plancc.ir.document import Frozen

SAMPLE_BYTES = 4096
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0)]


class TensorEntry(Frozen):
    """One tensor: `offset` is counted from the start of the file, `dtype` as safetensors spells it.

    sha256 is of the tensor's first, middle and last 4 KiB (fingerprint sampled: middle starts at
    (bytes - 4096) // 2; a tensor of at most 12 KiB is hashed whole), or of all its bytes (full).
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    file: str
    offset: Size
    bytes: Size
    sha256: Sha256

    @property
    def end(self) -> int:
        return self.offset + self.bytes


class FileEntry(Frozen):
    """A small file that belongs to the model: configuration, tokenizer, chat template."""

    file: str
    bytes: Size
    sha256: Sha256


class WeightIndex(Frozen):
    format: Literal["safetensors"] = "safetensors"
    fingerprint: Literal["sampled", "full"] = "sampled"
    files: tuple[FileEntry, ...] = ()
    tensors: tuple[TensorEntry, ...]

    @model_validator(mode="after")
    def _names_are_single(self) -> Self:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"tensors: expected each name once, found {twice!r} twice")
        return self

    def tensor(self, name: str) -> TensorEntry | None:
        return self.by_name().get(name)

    def by_name(self) -> dict[str, TensorEntry]:
        return {tensor.name: tensor for tensor in self.tensors}

    def digest(self) -> str:
        """sha256 of the index: what a plan records, and planrun compares before it loads."""
        tensors = sorted(self.tensors, key=lambda tensor: tensor.name)
        return sha256_of([self.fingerprint, [file.model_dump() for file in self.files],
                          [tensor.model_dump(mode="json") for tensor in tensors]])  # fmt: skip
