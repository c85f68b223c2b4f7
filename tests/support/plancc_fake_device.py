"""A device that works on by itself, on a clock that only it moves: for the probe's arithmetic.

A launch costs the host `launch_us`, a step takes the device `layer_us` a layer and `key_us` for
each position before it, and to see that all is done costs `wait_us`. Links carry rows as `fault`
lets them; a hop takes `hop_us` of its bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from plancc.executor.links import LocalLink
from plancc.executor.probe_model import square_model
from plancc.ir.tensors import rank_pieces


@dataclass
class Clock:
    """Stands for the module `time`; host and device in us."""

    host_us: float = 0.0
    device_us: float = 0.0

    def monotonic_ns(self) -> int:
        return round(self.host_us * 1e3)

    def monotonic(self) -> float:
        return self.host_us / 1e6

    def work(self, us: float) -> None:
        """Begun by the host now, done by the device after all that it has."""
        self.device_us = max(self.device_us, self.host_us) + us


@dataclass
class FakeDevice:
    """Backend and KindHost of one device."""

    clock: Clock = field(default_factory=Clock)
    launch_us: float = 30.0
    wait_us: float = 20.0
    layer_us: float = 10.0
    key_us: float = 0.0
    overhead_bytes: int = 0
    total_bytes: int = 2**30
    fault: Callable[[torch.Tensor], torch.Tensor] = lambda rows: rows
    hop_us: Callable[[int], float] = lambda size: 0.0
    used_bytes: int = 0
    opened: list[Any] = field(default_factory=list)

    def open(self, *, model: Any, layers: tuple[int, int], blocks: Any, **rest: Any) -> "FakeRank":
        rank = FakeRank(self, rank_pieces(model, layers, blocks=blocks), layers[1])
        self.used_bytes += rank.held + (0 if self.opened else self.overhead_bytes)
        self.opened.append(rest)
        return rank

    def link(self, source: Any, target: Any, *, shape: Any, dtype: Any, is_staged: bool,
             in_place: bool) -> "FakeLink":  # fmt: skip
        return FakeLink(self, torch.zeros(shape, dtype=dtype), is_staged=is_staged)

    def recorder(self, models: Any, links: Any) -> None:
        return None

    def free_bytes(self, uuid: str | None) -> int:
        return self.total_bytes - self.used_bytes


class FakeRank:
    def __init__(self, device: FakeDevice, pieces: Any, num_layers: int) -> None:
        self._device, self._pieces, self._num_layers = device, pieces, num_layers
        self._one = torch.zeros(1, dtype=torch.bfloat16)
        self.held = 1000 * len(pieces)

    def pieces(self) -> Any:
        return self._pieces

    def parameter(self, piece: Any) -> torch.Tensor:
        return self._one

    def allocated_bytes(self) -> dict[str, int]:
        return {"weights": self.held}

    def admit(self, slot: int) -> None: ...

    def begin(self, step: Any) -> None: ...

    def run(self, run: Any, step: Any, hidden: Any) -> torch.Tensor:
        self._device.clock.host_us += self._device.launch_us
        layer_us = self._device.layer_us + self._device.key_us * step.positions[0]
        self._device.clock.work(layer_us * self._num_layers)
        return self._one

    def wait(self) -> None:
        clock = self._device.clock
        clock.host_us = max(clock.host_us, clock.device_us) + self._device.wait_us


class FakeLink(LocalLink):
    def __init__(self, device: FakeDevice, buffers: torch.Tensor, *, is_staged: bool) -> None:
        super().__init__(buffers, len(buffers))
        self._device, self._is_staged = device, is_staged

    def send_rows(self, rows: torch.Tensor) -> None:
        self._device.clock.work(self._device.hop_us(rows.nbytes))
        super().send_rows(rows)

    def take_rows(self) -> torch.Tensor:
        rows = super().take_rows()
        return rows if self._is_staged else self._device.fault(rows)


def tiny_rank(device: FakeDevice) -> FakeRank:
    model = square_model(8 * 2**10, "bfloat16", 1)
    return device.open(model=model, layers=(0, 1), blocks=())
