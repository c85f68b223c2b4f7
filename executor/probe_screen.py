"""What a person sees of a measurement, all on stderr: the step it is at, then the numbers."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.table import Table

from plancc.ir.topology import Device, Link, Topology
from plancc.ir.units import format_bytes


class Progress:
    """A bar over the steps; nothing is drawn where stderr is no terminal."""

    def __init__(self, num_steps: int) -> None:
        console = Console(file=sys.stderr)
        self._bar = bars.Progress(
            bars.TextColumn("measuring"), bars.BarColumn(), bars.MofNCompleteColumn(),
            bars.TextColumn("{task.description}"), bars.TimeElapsedColumn(),
            console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=num_steps)
        self._begun = False

    def step(self, what: str) -> None:
        """`what` begins, so the step before it is done."""
        self._bar.update(self._task, description=what, advance=int(self._begun))
        self._begun = True

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._bar.stop()


def show_summary(topology: Topology, path: Path, how: str) -> None:
    """A table of devices, one of links, and where the file is."""
    console = Console(file=sys.stderr, highlight=False)
    devices = Table("device", "threads", "may hold", "reads", "launch", "matmul", box=None)
    for device in topology.devices:
        devices.add_row(*_device_cells(device))
    console.print(devices)
    if topology.links:
        links = Table("link", "a small message", "1 MiB", "rate", box=None)
        for link in topology.links:
            links.add_row(*_link_cells(link))
        console.print(links)
    console.print(f"wrote {path}: {len(topology.devices)} device(s) {how}")


def _device_cells(device: Device) -> tuple[str, ...]:
    rates = [size / us / 1e3 for size, us in device.read_points or ()] or [device.read_gb_s or 0.0]
    low, high = min(rates), max(rates)
    tflops = max((rate for _, rate in device.matmul_points or ()), default=0.0)
    return (device.name, str(device.threads or ""), format_bytes(device.budget_bytes),
            f"{low:.1f} - {high:.1f} GB/s", f"{device.launch_us:.1f} us",
            f"{tflops:.3g} TFLOP/s")  # fmt: skip


def _link_cells(link: Link) -> tuple[str, ...]:
    curve, mib = link.curve(), 2**20
    return (f"{link.from_} -> {link.to}", f"{curve.us(64):.0f} us", f"{curve.us(mib):.0f} us",
            f"{mib / curve.us(mib) / 1e3:.2f} GB/s")  # fmt: skip
