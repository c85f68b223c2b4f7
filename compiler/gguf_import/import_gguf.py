"""A GGUF file as a Hugging Face folder: written beside its place, then moved there whole."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.gguf_import.config_json import read_config, read_generation_config
from plancc.compiler.gguf_import.dequantise import encoded_blocks
from plancc.compiler.gguf_import.gguf_file import GgufFile, open_gguf
from plancc.compiler.gguf_import.safetensors_writer import SHARD_BYTES, NewTensor, write_shards
from plancc.compiler.gguf_import.tensor_map import tensor_copies
from plancc.compiler.gguf_import.tokenizer_json import (
    build_tokenizer,
    special_tokens_map,
    tokenizer_config,
)
from plancc.compiler.gguf_import.vocabulary import Vocabulary, read_vocabulary
from plancc.ir.dtype import DType
from plancc.ir.errors import BadInput

_OURS = ("config.json", "generation_config.json", "special_tokens_map.json", "tokenizer.json",
         "tokenizer_config.json")  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """What was written: tensors and their bytes, tokens of the vocabulary, notes for the user."""

    folder: Path
    num_tensors: int
    weight_bytes: int
    vocab_size: int
    notes: tuple[str, ...]


def import_gguf(
    path: Path,
    folder: Path,
    *,
    dtype: DType = "bfloat16",
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    started: Callable[[int], None] = lambda total_bytes: None,
    written: Callable[[int], None] = lambda num_bytes: None,
) -> Imported:
    """Write the model of a GGUF file to `folder`; nothing is left of an import that fails.

    `started` hears the bytes to come, `written` each piece's. Raises BadInput for a file that
    cannot be imported, and for a folder that is in use (`force` replaces an earlier import).
    """
    _check_folder(folder, force=force)
    file = open_gguf(path)
    config = read_config(file, dtype)
    reading = read_architecture(config, where=str(path), name=folder.name)
    copies = tensor_copies(file, reading.shape)
    vocabulary = read_vocabulary(file, config["vocab_size"])
    new = [NewTensor(copy.name, copy.shape, dtype, partial(encoded_blocks, copy, dtype))
           for copy in copies]  # fmt: skip
    part = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    try:
        part.mkdir(parents=True)
        _write_texts(part, file, config, vocabulary)
        total = sum(tensor.num_bytes for tensor in new)
        started(total)
        write_shards(part, new, shard_bytes=shard_bytes, written=written)
        _replace(part, folder)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Imported(folder, len(new), total, len(vocabulary.tokens), reading.notes)


def _write_texts(
    part: Path, file: GgufFile, config: dict[str, object], vocabulary: Vocabulary
) -> None:
    build_tokenizer(vocabulary).save(str(part / "tokenizer.json"), pretty=True)
    max_context = config["max_position_embeddings"]
    assert isinstance(max_context, int)
    for name, value in (
        ("config.json", config),
        ("generation_config.json", read_generation_config(file)),
        ("tokenizer_config.json", tokenizer_config(vocabulary, max_context)),
        ("special_tokens_map.json", special_tokens_map(vocabulary)),
    ):
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (part / name).write_text(text, encoding="utf-8")


def _check_folder(folder: Path, *, force: bool) -> None:
    """Absent, empty, or with `force` an earlier import and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: expected a folder, found a file")
    entries = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    if entries and not force:
        raise BadInput(f"{folder}: expected an empty or absent folder, found {len(entries)} "
                       f"entries; --force replaces an earlier import")  # fmt: skip
    foreign = [name for name in entries if name not in _OURS and not name.startswith("model")]
    if foreign:
        raise BadInput(f"{folder}: not replaced: {foreign[0]} was not written by import-gguf")


def _replace(part: Path, folder: Path) -> None:
    """Put `part` in place of `folder`; the old one is back if that fails."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        os.replace(folder, old)
    try:
        os.replace(part, folder)
    except OSError:
        if old.exists():
            os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
