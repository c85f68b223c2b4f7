"""From a device's kind to the modules that know it: the one place that tells kinds apart."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from plancc.ir.errors import BadInput

if TYPE_CHECKING:
    from plancc.executor.backend.api import Backend
    from plancc.executor.group import Group
    from plancc.executor.machine import KindHost
    from plancc.executor.probe_kinds import KindProbe
    from plancc.ir.manifest import ModelShape
    from plancc.ir.plan import Runtime
    from plancc.ir.tiles import Span

BACKENDS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "plancc.executor.backend.cpu:CpuBackend",
        "cuda": "plancc.executor.backend.cuda:CudaBackend",
    }
)
"""kind -> module:class. A test may hand in another table."""

ON_DEVICE = frozenset({"cuda"})
"""Kinds whose rows lie in memory that the host does not read."""

_IN_HOST_MEMORY = "plancc.executor.backend.cpu_host:InHostMemory"
HOSTS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": _IN_HOST_MEMORY,
        "cuda": "plancc.executor.backend.cuda_host:CudaHost",
    }
)
"""kind -> what this machine has of it; these modules import no torch."""

LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "plancc.executor.backend.cpu_limits:check_rank",
        "cuda": "plancc.executor.backend.cuda_limits:check_runnable",
    }
)
"""kind -> what refuses a rank that its kernels do not serve; these modules import no torch."""

PROBES: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "plancc.executor.probe_cpu:CpuProbe",
        "cuda": "plancc.executor.probe_cuda:CudaProbe",
    }
)
"""kind -> how its devices are found and measured."""


def backend_of(kind: str, table: Mapping[str, str] = BACKENDS) -> "Backend":
    """The backend for devices of a kind. Raises BadInput for a kind that none here runs."""
    if kind not in table:
        raise BadInput(f"no backend here runs devices of kind {kind!r}; there is one for "
                       f"{', '.join(sorted(table))}")  # fmt: skip
    return cast("Backend", _made(table[kind]))


def host_of(kind: str, table: Mapping[str, str] = HOSTS) -> "KindHost":
    """What this machine has of a kind; one that the table does not name is in its memory."""
    return cast("KindHost", _made(table.get(kind, _IN_HOST_MEMORY)))


def refuse_unserved(
    kind: str, model: "ModelShape", runtime: "Runtime", layers: "Span", tiles: "Span",
    group: "Group | None",
) -> None:  # fmt: skip
    """Raises BadInput for a rank that a kind's kernels do not serve, as its backend does when it
    opens one; silent for kinds that are not in the table."""
    if kind in LIMITS:
        _named(LIMITS[kind])(model, runtime, layers, tiles, group)


def probe_of(kind: str, table: Mapping[str, str] = PROBES) -> "KindProbe":
    """How devices of a kind that is in the table are found and measured."""
    return cast("KindProbe", _made(table[kind]))


def _made(where: str) -> object:
    return _named(where)()


def _named(where: str) -> Any:
    module, name = where.split(":")
    return getattr(import_module(module), name)
