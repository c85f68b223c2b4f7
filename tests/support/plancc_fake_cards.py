"""Cards as the driver's library tells them, without a driver; and that library itself, faked."""

from itertools import permutations
from types import SimpleNamespace
from typing import Any

from plancc.executor.backend.cuda_host import Cards, CudaHost
from plancc.executor.machine import Card
from plancc.ir.topology import Device, Host, Link, Topology

GIB, MIB = 2**30, 2**20
UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222", "GPU-cccc3333")


def card(number: int, free_bytes: int = 20 * GIB, model: str = "Card X") -> Card:
    return Card(number, UUIDS[number], model, 24 * GIB, free_bytes)


class TwoCards(CudaHost):
    """The second has 1.5 MiB free."""

    def __init__(self) -> None:
        super().__init__(lambda: Cards((card(0), card(1, 3 * MIB // 2))))


class OneCard(CudaHost):
    def __init__(self) -> None:
        super().__init__(lambda: Cards((card(2),)))


class NoCards(CudaHost):
    def __init__(self) -> None:
        super().__init__(lambda: Cards((), "NVML Shared Library Not Found"))


class FakeError(Exception):
    """What the library raises."""


class FakeLibrary:
    """pynvml with rows (uuid, name, total, free); None stands for a card that does not answer."""

    NVMLError = FakeError

    def __init__(self, rows: list[Any], fault: str = "") -> None:
        self.rows, self.fault, self.opened = rows, fault, 0

    def nvmlInit(self) -> None:
        if self.fault:
            raise FakeError(self.fault)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.rows)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        if self.rows[number] is None:
            raise FakeError("GPU is lost")
        return self.rows[number]

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        return SimpleNamespace(total=handle[2], free=handle[3], used=handle[2] - handle[3])

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return str(handle[0])

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return str(handle[1])


def card_topology(count: int, **device: Any) -> Topology:
    """gpu0 .. as planprobe writes them, every pair p2p but the last one back to the first."""
    devices = [
        Device.model_validate(
            {"name": f"gpu{i}", "host": "h0", "kind": "cuda", "uuid": f"GPU-{i}f3a77c2-93b1-11ef",
             "total_bytes": 143771 * MIB, "free_bytes": 143100 * MIB, "overhead_bytes": 623 * MIB,
             "reserve_bytes": 256 * MIB, "read_points": ((MIB, 2.1), (GIB, 241.3)),
             "tflops": {"bfloat16": 701.2}, "matmul_points": ((64, 220.0), (4096, 701.2)),
             "launch_us": 1.31} | device
        )
        for i in range(count)
    ]  # fmt: skip
    links = []
    for a, b in permutations([one.name for one in devices], 2):
        is_staged = (a, b) == (devices[-1].name, "gpu0")
        times = (9.5, 5700.0) if is_staged else (4.1, 190.0)
        links.append(Link.model_validate(
            {"from": a, "to": b, "mode": "staged" if is_staged else "p2p",
             "points": tuple(zip((64, 64 * MIB), times, strict=True))}
        ))  # fmt: skip
    return Topology(name="cards", hosts=(Host(name="h0", address="127.0.0.1"),),
                    devices=tuple(devices), links=tuple(links))  # fmt: skip
