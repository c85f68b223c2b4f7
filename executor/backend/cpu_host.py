"""Devices that are a part of the host's own memory: what a plan fills there, the host must have."""

from collections.abc import Mapping, Sequence

from plancc.executor.machine import Look
from plancc.ir.plan import PlanDevice


class InHostMemory:
    """KindHost of such a kind; what all of them need together is compared by who asks."""

    def host_bytes(self, device: PlanDevice) -> int:
        return device.ledger.total

    def free_bytes(self, uuid: str | None) -> None:
        """A budget is declared: it is not told by any device."""

    def look(self, devices: Sequence[PlanDevice], environment: Mapping[str, str]) -> Look:
        return Look()
