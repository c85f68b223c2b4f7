"""Cards as the driver's library tells them, without a driver; and that library itself, faked."""

from types import SimpleNamespace
from typing import Any

from plancc.executor.backend.cuda_host import Cards, CudaHost
from plancc.executor.machine import Card

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
