"""This machine, as a plan's host: memory that is free, cores, addresses. No torch."""

import os
import socket
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


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
