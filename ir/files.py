"""Writing a result: whole or not at all, and to where the path leads."""

import os
import stat
from pathlib import Path

from plancc.ir.errors import BadInput


def write_whole(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never a part: it is written beside the old one and
    renamed over it. Links are followed; a device or a pipe is written to, and stays what it is.

    Raises BadInput where it cannot be written; the old file is then as it was.
    """
    try:
        place, mode = _target(path)
        if mode is None or stat.S_ISREG(mode):
            _replace(place, text, mode)
        else:
            place.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot write it: {error.strerror}") from None


def refuse_unwritable(path: Path) -> None:
    """Raises BadInput where `write_whole` could not: said before long work, not after it."""
    try:
        place, mode = _target(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot write it: {error.strerror}") from None
    if mode is not None and not stat.S_ISREG(mode):
        if not os.access(place, os.W_OK):
            raise BadInput(f"{path}: cannot write it: permission denied")
    elif not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise BadInput(f"{path}: {place.parent} is no folder that can be written to")


def _target(path: Path) -> tuple[Path, int | None]:
    """Where to write, and the mode of what is there; None for nothing. Raises BadInput for a
    folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    except NotADirectoryError:
        return path, None
    if stat.S_ISDIR(mode):
        raise BadInput(f"{path}: expected a file to write, found a folder")
    # What is no file has no name to resolve to: /dev/stdout may lead to a pipe.
    return (Path(os.path.realpath(path)) if stat.S_ISREG(mode) else path), mode


def _replace(place: Path, text: str, mode: int | None) -> None:
    part = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        if mode is not None:
            part.chmod(stat.S_IMODE(mode))
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
