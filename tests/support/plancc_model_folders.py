"""Changing a model folder by one thing, and what `plancc manifest` then says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from plancc_checkpoints import write_json, write_safetensors

from plancc.compiler.manifest_cmd import manifest_command
from plancc.ir.errors import BadInput
from plancc.ir.safetensors_file import read_header

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


def change_config(folder: Path, **changes: Any) -> None:
    """Set fields of config.json; ... takes a field out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    write_json(path, {key: value for key, value in config.items() if value is not ...})


def read_tensors(path: Path) -> Tensors:
    """(code, shape, bytes) by name of one safetensors file."""
    raw = path.read_bytes()
    return {tensor.name: (tensor.dtype, tensor.shape, raw[tensor.offset : tensor.end])
            for tensor in read_header(path)}  # fmt: skip


def change_tensors(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Rewrite model.safetensors with other tensors."""
    path = folder / "model.safetensors"
    write_safetensors(path, change(read_tensors(path)))


def stored_bytes(folder: Path) -> dict[str, int]:
    """Bytes of each tensor of model.safetensors."""
    return {name: len(data) for name, (_, _, data) in
            read_tensors(folder / "model.safetensors").items()}  # fmt: skip


def run_manifest(folder: Path, *flags: str) -> Result:
    """`plancc manifest FOLDER FLAGS`, errors for users as exit code 2 and text on stderr."""
    result = CliRunner().invoke(manifest_command, [str(folder), *flags])
    if isinstance(result.exception, BadInput):
        result.exit_code = result.exception.exit_code
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def manifest_refusal(folder: Path, *flags: str) -> str:
    """The words in which the folder is refused."""
    with pytest.raises(BadInput) as caught:
        manifest_command.main([str(folder), *flags], standalone_mode=False)
    return str(caught.value)
