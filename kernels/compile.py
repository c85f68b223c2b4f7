"""How CPU kernels are compiled: numba without fast-math, so that the source fixes every bit.

`kernel` marks a part of a function; `function` is compiled when its module is imported, cached on
disk, and called by its address from other compiled code: inlining everything into everything took
40 s to compile. Numba's own cache looks only at the file of the cached function, and would run
stale machine code after a change in another file: ours is keyed by all sources.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import llvmlite
import numba
from numba import cfunc, njit
from numba.extending import intrinsic as _intrinsic

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "boundscheck": False}
_PART: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

Compiled = Callable[..., Any]
_CONFIG: Any = numba.config
_LOCK = threading.RLock()  # the cache's place is a global of numba


def kernel(function: Compiled) -> Compiled:
    """A part of compiled functions; typed by its first caller, and not callable from Python."""
    compiled: Compiled = njit(**_OPTIONS, **_PART)(function)
    return compiled


def intrinsic(function: Compiled) -> Compiled:
    """A (typing context, argument types) -> (signature, code generator) function, as a callable."""
    compiled: Compiled = _intrinsic(function)
    return compiled


class Function:
    """A C function of a signature, compiled when its address is first asked for."""

    def __init__(self, source: Compiled, signature: str) -> None:
        self.source = source
        self.signature = signature

    @cached_property
    def address(self) -> int:
        """Where compiled code finds it, as long as this object lives."""
        return int(self._compiled.address)

    @cached_property
    def _compiled(self) -> Any:
        return _compile(self.source, lambda kept: cfunc(self.signature, cache=kept, **_OPTIONS))


def function(signature: str) -> Callable[[Compiled], Function]:
    """The decorated function as a C function for compiled code to call."""
    return lambda source: Function(source, signature)


def compile_entry(source: Compiled, signature: str) -> Compiled:
    """A function for Python to call, without the GIL held."""
    found: Compiled = _compile(
        source, lambda kept: njit(signature, cache=kept, nogil=True, **_OPTIONS)
    )
    return found


def _compile(source: Compiled, decorator: Callable[[bool], Any]) -> Any:
    """Compiled, from the cache where possible: a broken cache costs time, never the run."""
    with _LOCK:
        folder = cache_folder()
        if folder is not None:
            before = _CONFIG.CACHE_DIR
            try:
                _CONFIG.CACHE_DIR = str(folder)
                return decorator(True)(source)
            except (OSError, EOFError, RuntimeError, UnpicklingError):
                pass  # disk full, a truncated file, a folder removed meanwhile
            finally:
                _CONFIG.CACHE_DIR = before
        return decorator(False)(source)


@cache
def cache_folder() -> Path | None:
    """A writable folder named by the digest of all kernel sources; None where there is none."""
    try:
        base = _CONFIG.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "plancc" / f"kernels-{_sources_digest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):
        return None


def _sources_digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
