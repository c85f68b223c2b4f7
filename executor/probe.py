"""Measure the devices of one host into a topology, with a run's own processes and kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plancc.executor.backends import probe_of
from plancc.executor.probe_between import Between
from plancc.executor.probe_kinds import DeclaredDevice, Scale, WorkerDevices, start_request
from plancc.executor.probe_numbers import rising, rounded, rounded_points
from plancc.executor.probe_pool import WorkerPool
from plancc.ir.dtype import DType
from plancc.ir.topology import Device, Host, Topology

_LIMIT_S = 240.0  # what is run first is compiled, on a busy machine

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class ProbeOptions:
    """quick: fewer sizes and repetitions; the numbers scatter more. is_staged: as if no card could
    reach another."""

    name: str
    host: Host
    devices: tuple[DeclaredDevice, ...]
    dtype: DType
    quick: bool = False
    is_staged: bool = False

    @property
    def hop_times(self) -> int:
        return 15 if self.quick else 40

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """By device."""
        return {device.name: probe_of(device.kind).scale(device, is_quick=self.quick)
                for device in self.devices}  # fmt: skip

    @cached_property
    def workers(self) -> tuple[WorkerDevices, ...]:
        """The processes that stand for the devices, as a run has them, in the devices' order."""
        groups: dict[str, list[DeclaredDevice]] = {}
        for device in self.devices:
            key = device.kind if probe_of(device.kind).shares_process else device.name
            groups.setdefault(key, []).append(device)
        return tuple(
            WorkerDevices(",".join(one.name for one in group), group[0].kind, tuple(group))
            for group in groups.values()
        )

    def between(self, pool: WorkerPool) -> Between:
        return Between(pool, self.workers, hop_times=self.hop_times, host=self.host.name,
                       is_staged=self.is_staged)  # fmt: skip

    def pool(self) -> WorkerPool:
        return WorkerPool({worker.name: worker.threads for worker in self.workers})

    @property
    def num_steps(self) -> int:
        """How often `probe` reports a step."""
        return 1 + 4 * len(self.devices) + self.between(self.pool()).num_steps()


@dataclass(frozen=True)
class Measured:
    """`warnings`: what a person should know before trusting the file."""

    topology: Topology
    warnings: tuple[str, ...] = ()


def probe(options: ProbeOptions, on_step: OnStep) -> Measured:
    """The measured topology; every process is alive, all but the measured ones idle.

    `on_step` is told what begins. Raises RunFailed when a process dies or is late.
    """
    with options.pool() as pool:
        on_step("start")
        overheads = _start(pool, options)
        devices = tuple(
            _measure_device(pool, options, worker, one, overheads[one.name], on_step)
            for worker in options.workers
            for one in worker.devices
        )
        between = options.between(pool)
        between.join(options.host.address)
        links = between.links(on_step)
        exchanges = between.exchanges(links, on_step)
    topology = Topology(name=options.name, hosts=(options.host,), devices=devices, links=links,
                        exchanges=exchanges)  # fmt: skip
    return Measured(topology, tuple(between.warnings))


def _start(pool: WorkerPool, options: ProbeOptions) -> dict[str, int]:
    """The overhead of each device."""
    requests = {
        worker.name: start_request(worker, options.dtype, options.scales)
        for worker in options.workers
    }
    answers = pool.ask_all(requests, limit_s=_LIMIT_S)
    return {name: size for answer in answers.values() for name, size in answer.items()}


def _measure_device(
    pool: WorkerPool, options: ProbeOptions, worker: WorkerDevices, device: DeclaredDevice,
    overhead_bytes: int, on_step: OnStep,
) -> Device:  # fmt: skip
    def ask(what: str, **fields: Any) -> Any:
        on_step(f"{device.name} {what}")
        request = {"do": what, "device": device.name, **fields}
        return pool.ask(worker.name, request, limit_s=_LIMIT_S)

    launch_us = ask("launch")
    read = ask("read", launch_us=launch_us)
    attention = ask("attention")
    matmul = rounded_points(ask("matmul", launch_us=launch_us, attention_tflops=attention))
    return Device(
        name=device.name,
        host=options.host.name,
        kind=device.kind,
        uuid=device.uuid,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        reserve_bytes=device.reserve_bytes,
        overhead_bytes=overhead_bytes,
        wire_bytes=probe_of(device.kind).wire_bytes,
        read_points=rounded_points(rising(read)),
        tflops={options.dtype: matmul[-1][1]},
        matmul_points=matmul,
        attention_tflops=rounded(attention),
        row_block=probe_of(device.kind).row_block(options.dtype),
        launch_us=rounded(launch_us),
        threads=device.threads,
    )
