"""A folder of weights: which file holds each tensor, and the fingerprinted index of all of them.

Only files that the index names are opened, and the index decides. Without an index there must be
one *.safetensors alone. Nothing is searched for: an index that does not fit is reported as stale.

The compiler writes the fingerprinted index into a manifest; the executor builds it again by the
same functions, before it takes any memory, and compares.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plancc.ir.document import read_json
from plancc.ir.errors import BadInput
from plancc.ir.safetensors_file import StoredTensor, read_chunks, read_header, same_bytes
from plancc.ir.weight_index import SAMPLE_BYTES, FileEntry, TensorEntry, WeightIndex

INDEX_FILE = "model.safetensors.index.json"
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Small files that decide what a model says; those that exist belong to its fingerprint."""

Fingerprint = Literal["sampled", "full"]


@dataclass(frozen=True)
class WeightFolder:
    """Every tensor of the model once, by file and offset; warnings, and files left out."""

    path: Path
    tensors: tuple[StoredTensor, ...]
    warnings: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()

    def tensor(self, name: str) -> StoredTensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)


def read_weight_folder(folder: Path) -> WeightFolder:
    """Headers of the files that the index names, or of the only *.safetensors there is.

    Raises BadInput: a file that is absent (all of them are listed), cut or wrong; an index that
    does not agree with the files; a tensor stored twice with different bytes.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such model folder")
    present = sorted(path.name for path in folder.glob("*.safetensors"))
    if not (folder / INDEX_FILE).exists():
        return WeightFolder(folder, read_header(folder / _only_file(folder, present)))
    home = _weight_map(folder / INDEX_FILE)
    files = sorted(set(home.values()))
    _check_present(folder, files)
    copies: dict[str, list[StoredTensor]] = {}
    for file in files:
        for tensor in read_header(folder / file):
            copies.setdefault(tensor.name, []).append(tensor)
    _check_index(folder, home, copies)
    tensors = [next(copy for copy in copies[name] if copy.file == file)
               for name, file in home.items()]  # fmt: skip
    tensors.sort(key=lambda tensor: (tensor.file, tensor.offset, tensor.name))
    strays = tuple(name for name in present if name not in files)
    return WeightFolder(folder, tuple(tensors), _doubles(folder, home, copies), strays)


def weight_index(
    folder: Path,
    fingerprint: Fingerprint = "sampled",
    *,
    hashed: Callable[[int], None] = lambda num_bytes: None,
) -> WeightIndex:
    """The index of a model folder; `hashed` hears of the weight bytes as they are read.

    Raises BadInput as `read_weight_folder` does.
    """
    return index_of(read_weight_folder(folder), fingerprint, hashed=hashed)


def index_of(
    weights: WeightFolder,
    fingerprint: Fingerprint = "sampled",
    *,
    hashed: Callable[[int], None] = lambda num_bytes: None,
) -> WeightIndex:
    """Fingerprints of a folder that has been read."""
    entries = []
    for tensor in weights.tensors:
        digest = tensor_digest(weights.path / tensor.file, tensor, fingerprint, hashed=hashed)
        entries.append(
            TensorEntry(
                name=tensor.name,
                dtype=tensor.dtype,
                shape=tensor.shape,
                file=tensor.file,
                offset=tensor.offset,
                bytes=tensor.bytes,
                sha256=digest,
            )
        )
    return WeightIndex(
        fingerprint=fingerprint, files=model_files(weights.path), tensors=tuple(entries)
    )


def model_files(folder: Path) -> tuple[FileEntry, ...]:
    """Those of MODEL_FILES that the folder has, each hashed whole. Raises BadInput."""
    entries = []
    for name in MODEL_FILES:
        path = folder / name
        if path.is_file():
            try:
                data = path.read_bytes()
            except OSError as error:
                raise BadInput(f"{path}: cannot read it: {error.strerror}") from None
            digest = hashlib.sha256(data).hexdigest()
            entries.append(FileEntry(file=name, bytes=len(data), sha256=digest))
    return tuple(entries)


def sample_spans(num_bytes: int) -> tuple[tuple[int, int], ...]:
    """Byte ranges of a tensor that a sampled fingerprint covers: see TensorEntry."""
    if num_bytes <= 3 * SAMPLE_BYTES:
        return ((0, num_bytes),)
    middle = (num_bytes - SAMPLE_BYTES) // 2
    return tuple((first, first + SAMPLE_BYTES) for first in (0, middle, num_bytes - SAMPLE_BYTES))


def tensor_digest(
    path: Path,
    tensor: StoredTensor | TensorEntry,
    fingerprint: Fingerprint,
    *,
    hashed: Callable[[int], None] = lambda num_bytes: None,
) -> str:
    """Hex sha256 of a tensor's samples, or of all its bytes, read from its file.

    Raises BadInput when the file ends before the tensor does.
    """
    spans = sample_spans(tensor.bytes) if fingerprint == "sampled" else ((0, tensor.bytes),)
    digest = hashlib.sha256()
    for first, end in spans:
        for piece in read_chunks(path, tensor.offset + first, end - first):
            digest.update(piece)
            hashed(len(piece))
    return digest.hexdigest()


def _only_file(folder: Path, present: list[str]) -> str:
    if not present:
        raise BadInput(f"{folder}: expected {INDEX_FILE} or one *.safetensors, found neither; "
                       f"download the model's *.safetensors here too, with their index if they "
                       f"are several")  # fmt: skip
    if len(present) > 1:
        raise BadInput(f"{folder}: without {INDEX_FILE} expected one *.safetensors, found "
                       f"{len(present)}: {', '.join(present)}")  # fmt: skip
    return present[0]


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor -> file name, as the index has it; files lie in the folder itself."""
    data = read_json(path, "weight index")
    found = data.get("weight_map") if isinstance(data, Mapping) else None
    if not isinstance(found, dict) or not found:
        raise BadInput(f"{path}: field weight_map: expected tensors and their files, "
                       f"found {type(found).__name__}")  # fmt: skip
    for name, file in found.items():
        if not isinstance(file, str) or file in ("", ".", "..") or set(file) & set("/\\\0"):
            raise BadInput(f"{path}: field weight_map: {name}: expected the name of a file in this "
                           f"folder, found {file!r}")  # fmt: skip
    return found


def _check_present(folder: Path, files: list[str]) -> None:
    absent = [file for file in files if not (folder / file).is_file()]
    if absent:
        raise BadInput(f"{folder}: {INDEX_FILE} names {len(files)} files, {len(absent)} absent: "
                       f"{', '.join(absent)}; fetch them, or the index is stale")  # fmt: skip


def _check_index(
    folder: Path, home: Mapping[str, str], copies: Mapping[str, list[StoredTensor]]
) -> None:
    """Index and headers list the same tensors, each where the index says."""
    problems = []
    for name, file in sorted(home.items()):
        holders = [copy.file for copy in copies.get(name, [])]
        if file not in holders:
            found = f"it lies in {', '.join(holders)}" if holders else "no file has it"
            problems.append(f"{name}: expected in {file}; {found}")
    problems += [f"{name}: in {copies[name][0].file}, not in the index"
                 for name in sorted(set(copies) - set(home))]  # fmt: skip
    if problems:
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise BadInput(f"{folder / INDEX_FILE}: stale: {len(problems)} tensors are not where it "
                       f"says:\n  " + "\n  ".join(problems[:8]) + more)  # fmt: skip


def _doubles(
    folder: Path, home: Mapping[str, str], copies: Mapping[str, list[StoredTensor]]
) -> tuple[str, ...]:
    """One warning for tensors that are stored more than once. Raises BadInput if bytes differ."""
    doubled = {name: found for name, found in sorted(copies.items()) if len(found) > 1}
    for name, found in doubled.items():
        first, *others = found
        for other in others:
            if not same_bytes(folder, first, other):
                raise BadInput(f"{folder}: tensor {name} is stored in {first.file} and "
                               f"{other.file} with different bytes; remove one from the "
                               f"shards and the index")  # fmt: skip
    if not doubled:
        return ()
    name = next(iter(doubled))
    return (f"{len(doubled)} tensors are stored more than once with the same bytes, such as "
            f"{name} in {', '.join(copy.file for copy in doubled[name])}; {home[name]} is "
            f"read",)  # fmt: skip
