"""Measure the devices of one host into a topology, with a run's own processes and kernels."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from plancc.executor.probe_pool import WorkerPool
from plancc.ir.dtype import DType
from plancc.ir.topology import Device, Exchange, Host, Link, Topology

MIB = 2**20
HOP_SIZES = (64, 1024, 8 * 1024, 64 * 1024, 512 * 1024, 4 * MIB)
_START_LIMIT_S = 240.0  # importing torch and compiling kernels on a busy machine
_STEP_LIMIT_S = 30.0
_DIGITS = 4

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class DeclaredDevice:
    """A device before it is measured: what it may hold and how it computes."""

    name: str
    kind: str
    uuid: str | None
    total_bytes: int
    free_bytes: int
    threads: int


@dataclass(frozen=True)
class ProbeOptions:
    """quick: fewer sizes and repetitions; the numbers scatter more."""

    name: str
    host: Host
    devices: tuple[DeclaredDevice, ...]
    dtype: DType
    quick: bool = False

    @property
    def read_sizes(self) -> tuple[int, ...]:
        """Bytes of weights a kernel streams: a small model's matrices up to a large head."""
        halves = (1, 4, 16, 64) if self.quick else (1, 2, 4, 8, 16, 32, 128)
        return tuple(half * MIB // 2 for half in halves)

    @property
    def matmul_rows(self) -> tuple[int, ...]:
        """Multiples of the prompt block."""
        return (64, 256) if self.quick else (64, 128, 256, 512)

    @property
    def seconds(self) -> float:
        """Of stepping for one number of a device."""
        return 0.15 if self.quick else 0.5

    @property
    def rotated_bytes(self) -> int:
        """Weights that a step walks over: several times the largest cache."""
        return (128 if self.quick else 256) * MIB

    @property
    def hop_times(self) -> int:
        return 15 if self.quick else 40

    @property
    def num_steps(self) -> int:
        """How often `probe` reports a step."""
        count = len(self.devices)
        return 1 + 3 * count + count * (count - 1) + (count > 1)


def probe(options: ProbeOptions, on_step: OnStep) -> Topology:
    """The measured topology; every device's process is alive, all but the measured ones idle.

    `on_step` is told what begins. Raises RunFailed when a process dies or is late.
    """
    with WorkerPool({device.name: device.threads for device in options.devices}) as pool:
        on_step("start")
        _start(pool, options)
        devices = tuple(_measure_device(pool, options, one, on_step) for one in options.devices)
        if len(devices) == 1:
            return Topology(name=options.name, hosts=(options.host,), devices=devices)
        _join(pool, options)
        links = _measure_hops(pool, options, on_step)
        on_step("exchange")
        exchange = _measure_exchange(pool, options)
    return Topology(name=options.name, hosts=(options.host,), devices=devices, links=links,
                    exchanges=(exchange,))  # fmt: skip


def _start(pool: WorkerPool, options: ProbeOptions) -> None:
    requests = {
        device.name: {"do": "start", "kind": device.kind, "threads": device.threads,
                      "dtype": options.dtype, "seconds": options.seconds,
                      "rotated_bytes": options.rotated_bytes}
        for device in options.devices
    }  # fmt: skip
    pool.ask_all(requests, limit_s=_START_LIMIT_S)


def _measure_device(
    pool: WorkerPool, options: ProbeOptions, device: DeclaredDevice, on_step: OnStep
) -> Device:
    def ask(what: str, **fields: Any) -> Any:
        on_step(f"{device.name} {what}")
        return pool.ask(device.name, {"do": what, **fields}, limit_s=_STEP_LIMIT_S)

    launch_us = ask("launch")
    read = ask("read", sizes=options.read_sizes, launch_us=launch_us)
    matmul = rounded_points(ask("matmul", rows=options.matmul_rows, launch_us=launch_us))
    return Device(
        name=device.name,
        host=options.host.name,
        kind=device.kind,
        uuid=device.uuid,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        read_points=rounded_points(rising(read)),
        tflops={options.dtype: matmul[-1][1]},
        matmul_points=matmul,
        launch_us=rounded(launch_us),
        threads=device.threads,
    )


def _join(pool: WorkerPool, options: ProbeOptions) -> None:
    names, address = [device.name for device in options.devices], options.host.address
    port = pool.ask(names[0], {"do": "listen", "address": address}, limit_s=_STEP_LIMIT_S)
    requests = {
        name: {"do": "join", "rank": rank, "size": len(names), "address": address, "port": port}
        for rank, name in enumerate(names)
    }  # fmt: skip
    pool.ask_all(requests, limit_s=_STEP_LIMIT_S)


def _measure_hops(pool: WorkerPool, options: ProbeOptions, on_step: OnStep) -> tuple[Link, ...]:
    names = [device.name for device in options.devices]
    return tuple(
        _measure_hop(pool, options, source, target, on_step)
        for source, target in permutations(range(len(names)), 2)
    )


def _measure_hop(
    pool: WorkerPool, options: ProbeOptions, source: int, target: int, on_step: OnStep
) -> Link:
    names = [device.name for device in options.devices]
    pair = (names[source], names[target])
    on_step(f"{pair[0]} -> {pair[1]}")
    request = {"do": "hop", "source": source, "target": target, "sizes": HOP_SIZES,
               "times": options.hop_times}  # fmt: skip
    clocks = pool.ask_all(dict.fromkeys(pair, request), limit_s=_STEP_LIMIT_S)
    points = [
        (size, median_us(sent, received))
        for size, sent, received in zip(HOP_SIZES, clocks[pair[0]], clocks[pair[1]], strict=True)
    ]
    return Link.model_validate(
        {
            "from": pair[0],
            "to": pair[1],
            "mode": "network",
            "points": rounded_points(rising(points)),
        }
    )


def _measure_exchange(pool: WorkerPool, options: ProbeOptions) -> Exchange:
    """By size, the slowest rank's median: an exchange has ended when all have everything."""
    names = tuple(device.name for device in options.devices)
    request = {"do": "exchange", "sizes": HOP_SIZES, "times": options.hop_times}
    answers = pool.ask_all(dict.fromkeys(names, request), limit_s=_STEP_LIMIT_S)
    points = [
        (size, max(statistics.median(answers[name][index]) for name in names))
        for index, size in enumerate(HOP_SIZES)
    ]
    return Exchange(group=names, points=rounded_points(rising(points)))


def median_us(sent_ns: Sequence[int], received_ns: Sequence[int]) -> float:
    """Median of the one-way times between two lists of clocks."""
    return statistics.median(
        (end - begin) / 1e3 for begin, end in zip(sent_ns, received_ns, strict=True)
    )


def rounded(value: float) -> float:
    """Four significant digits: a measurement does not know more."""
    return float(f"{value:.{_DIGITS}g}")


def rounded_points(points: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((size, rounded(value)) for size, value in points)


def rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, none above a later one: fewer bytes take no longer, and noise only adds."""
    return [(size, min(us for _, us in points[i:])) for i, (size, _) in enumerate(points)]
