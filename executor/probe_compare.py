"""What moved between two measurements of the same devices."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from plancc.ir.curve import Curve, Points
from plancc.ir.exchange import Exchange
from plancc.ir.topology import Device, Topology
from plancc.ir.units import format_bytes

MIB, GIB = 2**20, 2**30
_SAME_PERCENT = 3.0  # two measurements in a row scatter by about this much


@dataclass(frozen=True)
class Change:
    """One measured number, as it was and as it is."""

    what: str
    old: float
    new: float
    unit: str

    @property
    def percent(self) -> float:
        return (self.new / self.old - 1) * 100

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "percent": round(self.percent, 1)}


def changes(old: Topology, new: Topology) -> list[Change]:
    """Every number measured in both, in the file's order: also those that stayed."""
    rows: list[Change] = []
    for device in new.devices:
        before = old.device(device.name)
        if before is not None:
            rows += _device_changes(before, device)
    for link in new.links:
        was = old.link(link.from_, link.to)
        if was is not None:
            rows += _time_changes(f"{link.from_} -> {link.to}", link.points, was.curve().us)
    for exchange in new.exchanges:
        rows += _exchange_changes(old, exchange)
    return rows


def describe_changes(rows: list[Change]) -> str:
    """The rows that moved, largest first, then one line that counts."""
    moved = sorted(
        (row for row in rows if abs(row.percent) >= _SAME_PERCENT),
        key=lambda row: -abs(row.percent),
    )
    width = max((len(row.what) for row in moved), default=0)
    lines = [
        f"{row.what:{width}}  {row.old:.4g} -> {row.new:.4g} {row.unit}  ({row.percent:+.1f} %)"
        for row in moved
    ]
    word = f"{len(moved)} of {len(rows)} numbers moved by {_SAME_PERCENT:g} % or more"
    return "\n".join([*lines, word if moved else f"No changes: {word}"])


def _device_changes(old: Device, new: Device) -> Iterator[Change]:
    if new.overhead_bytes and old.overhead_bytes:  # a card: what it has free is measured too
        yield Change(f"{new.name} free", old.free_bytes / GIB, new.free_bytes / GIB, "GiB")
        yield Change(f"{new.name} overhead", old.overhead_bytes / MIB, new.overhead_bytes / MIB,
                     "MiB")  # fmt: skip
    if old.launch_us:
        yield Change(f"{new.name} launch", old.launch_us, new.launch_us, "us")
    yield from _rate_changes(f"{new.name} read", new.read_points, old.read_curve().us)
    dtype = next(iter(new.tflops), "bfloat16")
    for rows, tflops in new.matmul_points or ():
        was = old.matmul_tflops(int(rows), dtype)
        if was is not None:
            yield Change(f"{new.name} matmul of {rows:g} rows", was, tflops, "TFLOP/s")
    if new.attention_tflops and old.attention_tflops:
        yield Change(f"{new.name} attention", old.attention_tflops, new.attention_tflops, "TFLOP/s")


def _exchange_changes(old: Topology, new: Exchange) -> Iterator[Change]:
    was = next((exchange for exchange in old.exchanges if exchange.group == new.group), None)
    if was is None:
        return
    what = f"exchange {','.join(new.group)}"
    yield from _time_changes(what, new.points, was.curve().us)
    if was.owned_points is not None:
        owned_us = Curve(was.owned_points).us
        yield from _time_changes(f"{what} with an owner", new.owned_points, owned_us)
    if max(was.slowdown, new.slowdown) > 1:  # of cards it is not measured
        yield Change(f"{what} slowdown", was.slowdown, new.slowdown, "times")


def _rate_changes(
    what: str, points: Points | None, old_us: Callable[[float], float]
) -> Iterator[Change]:
    for size, us in points or ():
        yield Change(f"{what} of {format_bytes(int(size))}", size / old_us(size) / 1e3,
                     size / us / 1e3, "GB/s")  # fmt: skip


def _time_changes(
    what: str, points: Points | None, old_us: Callable[[float], float]
) -> Iterator[Change]:
    for size, us in points or ():
        yield Change(f"{what} of {format_bytes(int(size))}", old_us(size), us, "us")
