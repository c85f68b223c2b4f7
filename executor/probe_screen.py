"""What a person sees of a measurement, all on stderr: the step it is at, then the numbers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich import progress as bars
from rich.console import Console
from rich.table import Table

from plancc.ir.exchange import Exchange
from plancc.ir.topology import Device, Link, Topology
from plancc.ir.units import format_bytes

_MANY_LINKS, _MOST_EXCHANGES = 12, 4
_UUID_LETTERS = 12


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


def show_summary(topology: Topology, path: Path, how: str, warnings: Sequence[str] = ()) -> None:
    """A table of devices, one of links, one of exchanges, what to beware of, where the file is."""
    console = Console(file=sys.stderr, highlight=False)
    console.print(devices_table(topology.devices))
    if topology.links:
        many = len(topology.links) > _MANY_LINKS
        console.print(links_matrix(topology) if many else links_table(topology.links))
    if topology.exchanges:
        console.print(exchanges_table(topology.exchanges))
    for warning in warnings:
        console.print(f"warning: {warning}", markup=False)
    console.print(f"wrote {path}: {len(topology.devices)} device(s) {how}", markup=False)


def devices_table(devices: Sequence[Device]) -> Table:
    """A row a device; what opening it takes only where that is something."""
    has_overhead = any(device.overhead_bytes for device in devices)
    table = Table("device", "which", "may hold", *(["overhead"] if has_overhead else []),
                  "reads, GB/s", "launch", "TFLOP/s", box=None)  # fmt: skip
    for device in devices:
        table.add_row(*_device_cells(device, has_overhead=has_overhead))
    return table


def _device_cells(device: Device, *, has_overhead: bool) -> tuple[str, ...]:
    rates = [size / us / 1e3 for size, us in device.read_points or ()] or [device.read_gb_s or 0.0]
    tflops = max((rate for _, rate in device.matmul_points or ()), default=0.0)
    which = f"{device.threads} thread(s)" if device.threads else (device.uuid or "")[:_UUID_LETTERS]
    overhead = f"{device.overhead_bytes / 2**20:.0f} MiB" if device.overhead_bytes else ""
    return (device.name, which, format_bytes(device.budget_bytes),
            *([overhead] if has_overhead else []), f"{_digits(min(rates))} - {_digits(max(rates))}",
            f"{device.launch_us:.1f} us", f"{tflops:.3g}")  # fmt: skip


def links_table(links: Sequence[Link]) -> Table:
    """A row a link."""
    trunk = ["trunk"] if any(link.trunk for link in links) else []
    table = Table("link", "mode", "a small message", "1 MiB", "rate", *trunk, box=None)
    for link in links:
        curve = link.curve()
        table.add_row(f"{link.from_} -> {link.to}", link.mode, _us(curve.us(64)),
                      _us(curve.us(2**20)), f"{_digits(_rate(link))} GB/s",
                      *([link.trunk or ""] if trunk else []))  # fmt: skip
    return table


def links_matrix(topology: Topology) -> Table:
    """GB/s from each row's device to each column's, where a row a link would be too many."""
    names = [device.name for device in topology.devices]
    small = [link.curve().us(64) for link in topology.links]
    modes = sorted({link.mode for link in topology.links})
    trunks = sorted({link.trunk for link in topology.links if link.trunk})
    words = [f"GB/s from row to column; {', '.join(modes)}",
             f"a small message: {_us(min(small))} - {_us(max(small))}",
             *([f"shared: {', '.join(trunks)}"] if trunks else [])]  # fmt: skip
    marks = dict.fromkeys(modes, "") if len(modes) == 1 else {mode: f" {mode[0]}" for mode in modes}
    table = Table("", *names, box=None, caption="\n".join(words), caption_justify="left")
    for source in names:
        links = [topology.link(source, target) for target in names]
        cells = [f"{_digits(_rate(link))}{marks[link.mode]}" if link else "" for link in links]
        table.add_row(source, *cells)
    return table


def exchanges_table(exchanges: Sequence[Exchange]) -> Table:
    """The largest groups first, and only so many."""
    table = Table("exchange", "8 KiB", "64 KiB", "512 KiB", box=None)
    ordered = sorted(exchanges, key=lambda row: -len(row.group))
    for row in ordered[:_MOST_EXCHANGES]:
        times = [_us(row.curve().us(size)) for size in (2**13, 2**16, 2**19)]
        group = row.group
        table.add_row(",".join(group) if len(group) < 5 else f"{group[0]} .. {group[-1]}", *times)
    return table


def _rate(link: Link) -> float:
    """GB/s at the largest size measured."""
    size = link.points[-1][0] if link.points else 2**20
    return size / link.curve().us(size) / 1e3


def _us(us: float) -> str:
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"


def _digits(rate: float) -> str:
    return f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"
