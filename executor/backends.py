"""From a device's kind to the module that runs it: the one place that tells kinds apart."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from plancc.ir.errors import BadInput

if TYPE_CHECKING:
    from plancc.executor.backend.api import Backend

BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "plancc.executor.backend.cpu:CpuBackend",
        "cuda": "plancc.executor.backend.cuda:CudaBackend",
    }
)
"""kind -> module:class. A test may hand in another table."""


def backend_of(kind: str, table: Mapping[str, str] = BACKENDS) -> "Backend":
    """The backend for devices of a kind. Raises BadInput for a kind that none here runs."""
    if kind not in table:
        raise BadInput(f"no backend here runs devices of kind {kind!r}; there is one for "
                       f"{', '.join(sorted(table))}")  # fmt: skip
    module, name = table[kind].split(":")
    return cast("Backend", getattr(import_module(module), name)())
