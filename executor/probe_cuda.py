"""CUDA cards for the probe: which are here, and at which scale they are measured."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plancc.executor.backend.cuda_host import VISIBLE, find_cards, visible_cards
from plancc.executor.machine import Card
from plancc.executor.probe_kinds import GIB, MIB, DeclaredDevice, Scale
from plancc.ir.errors import BadInput
from plancc.ir.topology import Device

if TYPE_CHECKING:
    import torch

_SIZES = tuple(MIB << power for power in range(11))  # 1 MiB .. 1 GiB
_LAYER_SHARE = 5  # a layer is 4 to 5 times its square matrix
_ROTATED, _MATRIX = GIB, 128 * MIB  # 20 times a large cache; a prompt's launches hide behind it
_LEAST_ROWS = 64


class CudaProbe:
    """KindProbe of CUDA cards: one process has them all, as in a run."""

    shares_process = True

    def cards(self, environment: Mapping[str, str]) -> tuple[Card, ...]:
        return visible_cards(find_cards().cards, environment)

    def again(self, device: Device, where: str, environment: Mapping[str, str]) -> DeclaredDevice:
        """The card of that uuid, with what is free on it now; the only card where none is told."""
        cards = self.cards(environment)
        mine = [card for card in cards if device.uuid in (None, card.uuid)]
        if len(mine) != 1:
            here = ", ".join(card.uuid for card in cards) or "none"
            hidden = f" ({VISIBLE}={environment[VISIBLE]})" if VISIBLE in environment else ""
            raise BadInput(f"{where}: devices.{device.name}.uuid {device.uuid or '(none)'}: "
                           f"expected one card of this machine, found {here}{hidden}; measure "
                           f"this machine's with -o")  # fmt: skip
        total, free = (size // MIB * MIB for size in (mine[0].total_bytes, mine[0].free_bytes))
        return DeclaredDevice(device.name, device.kind, mine[0].uuid, total, free, None,
                              device.reserve_bytes)  # fmt: skip

    def scale(self, device: DeclaredDevice, *, is_quick: bool) -> Scale:
        """Sizes that a small card has no room for are left out."""
        room = device.free_bytes // 2
        sizes = [size for size in _SIZES if _LAYER_SHARE * size <= room] or [_SIZES[0]]
        rows = [_LEAST_ROWS << power for power in range(7)]  # .. 4096
        matrix = min(_MATRIX, sizes[-1])
        return Scale(
            read_sizes=tuple(sizes[:: 3 if is_quick else 1]),
            rotated_bytes=min(_ROTATED, room),
            matmul_rows=tuple(rows[:: 3 if is_quick else 1]),
            matmul_bytes=matrix,
            matmul_total=min(2 * _LAYER_SHARE * matrix, room),
            tiny_total=4 * MIB,  # 100 layers: a step takes longer than its replay
            seconds=0.05 if is_quick else 0.2,
            batch_s=0.02,
        )

    def can_reach(self, source: "torch.device", target: "torch.device") -> bool:
        import torch  # the process that measures has it

        if source == target:
            return True
        return bool(torch.cuda.can_device_access_peer(source, target))
