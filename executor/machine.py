"""This machine, as a plan's host: memory that is free, cores, addresses, devices. No torch."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from plancc.ir.plan import PlanDevice

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Card:
    """A device with memory of its own; `number` is its place in the driver's list."""

    number: int
    uuid: str
    model: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Look:
    """What is wrong with a plan's devices of one kind, and what was found of the others."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class KindHost(Protocol):
    """What this machine has of one kind of device, found without opening any."""

    def look(self, devices: Sequence["PlanDevice"], environment: Mapping[str, str]) -> Look:
        """Can a process of this environment have these devices of a plan, each with its ledger?"""

    def host_bytes(self, device: "PlanDevice") -> int:
        """What of the device's ledger lies in the host's memory."""

    def free_bytes(self, uuid: str | None) -> int | None:
        """Free on the device now; None where no device tells."""


def available_bytes() -> int:
    """Memory that new processes may take now: MemAvailable, or less where a cgroup says so."""
    return min(_meminfo_available(), _cgroup_available())


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def has_address(address: str) -> bool:
    """True if one can listen here at that address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _meminfo_available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise AssertionError("Linux since 3.14 tells MemAvailable")


def _cgroup_available() -> int:
    """limit - what is in use and cannot be reclaimed; the largest integer where there is none."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return 2**63 - 1
    if limit == "max":
        return 2**63 - 1
    return int(limit) - used + int(stat.get("inactive_file", 0))
