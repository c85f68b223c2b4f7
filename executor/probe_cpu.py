"""CPU devices: what a host has of memory and cores, and how its devices are declared.

The only module of the probe that knows this kind of device: everything measured goes through the
backend of the device's kind.
"""

import os
from pathlib import Path

from plancc.executor.machine import available_bytes, num_cores
from plancc.executor.probe import DeclaredDevice
from plancc.ir.errors import BadInput
from plancc.ir.units import format_bytes


def declare_cpu_devices(
    host: str, count: int, *, memory: tuple[int, ...] | None, threads: tuple[int, ...] | None
) -> tuple[DeclaredDevice, ...]:
    """cpu0 .. of a host: declared budgets, else equal parts of the RAM that is free now.

    Raises BadInput when more memory or more threads are declared than the host has.
    """
    total, free = host_memory_bytes()
    cores = num_cores()
    budgets = memory or (free // count,) * count
    counts = threads or (max(1, cores // count),) * count
    if sum(budgets) > total:
        raise BadInput(f"--cpu-memory: {count} device(s) declare {format_bytes(sum(budgets))} in "
                       f"all, host {host} has {format_bytes(total)}")  # fmt: skip
    if max(counts) > cores:
        raise BadInput(f"--cpu-threads: expected at most the {cores} cores of host {host}, found "
                       f"{max(counts)}")  # fmt: skip
    return tuple(
        DeclaredDevice(f"cpu{i}", "cpu", f"CPU-{host}-{i}", budget if memory else total, budget, n)
        for i, (budget, n) in enumerate(zip(budgets, counts, strict=True))
    )


def host_memory_bytes() -> tuple[int, int]:
    """(all, free now) of the RAM that this process may use, a container's limit counted."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    total = min(total, int(text)) if text.isdigit() else total
    return total, min(total, available_bytes())
