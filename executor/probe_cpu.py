"""CPU devices: what a host has of memory and cores, and how its devices are declared."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plancc.executor.machine import Card, available_bytes, num_cores
from plancc.executor.probe_kinds import MIB, DeclaredDevice, Scale
from plancc.ir.dtype import DType
from plancc.ir.errors import BadInput
from plancc.ir.topology import Device
from plancc.ir.units import format_bytes

if TYPE_CHECKING:
    import torch

_SCALE = Scale(
    read_sizes=tuple(half * MIB // 2 for half in (1, 2, 4, 8, 16, 32, 128)),
    rotated_bytes=256 * MIB,
    prompt_width=512,
    matmul_rows=(64, 128, 256, 512),
    attention_rows=64,
    attention_chunks=32,
    tiny_total=MIB,
    seconds=0.5,
)
_QUICK = Scale(
    read_sizes=tuple(half * MIB // 2 for half in (1, 4, 16, 64)),
    rotated_bytes=128 * MIB,
    prompt_width=512,
    matmul_rows=(64, 256),
    attention_rows=64,
    attention_chunks=32,
    tiny_total=MIB,
    seconds=0.15,
)


class CpuProbe:
    """KindProbe of devices that are a part of the host: they are declared, never found."""

    shares_process = False
    wire_bytes = 0

    def row_block(self, dtype: DType) -> None:
        return None

    def cards(self, environment: Mapping[str, str]) -> tuple[Card, ...]:
        return ()

    def again(self, device: Device, where: str, environment: Mapping[str, str]) -> DeclaredDevice:
        """The same budget: it was declared."""
        return DeclaredDevice(device.name, device.kind, device.uuid, device.total_bytes,
                              device.free_bytes, device.threads or num_cores(),
                              device.reserve_bytes)  # fmt: skip

    def scale(self, device: DeclaredDevice, *, is_quick: bool) -> Scale:
        return _QUICK if is_quick else _SCALE

    def can_reach(self, source: "torch.device", target: "torch.device") -> bool:
        return True


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
