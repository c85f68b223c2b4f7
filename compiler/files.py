"""Writing a result: whole or not at all."""

import os
import tempfile
from pathlib import Path

from plancc.ir.errors import BadInput


def write_whole(path: Path, text: str) -> None:
    """Write beside `path`, then rename over it: a reader sees the old file or the new one.

    Raises BadInput where there is no such folder, or it cannot be written.
    """
    if path.is_dir():
        raise BadInput(f"{path}: expected a file to write, found a folder")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes a file that only its owner may read
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
