"""CUDA cards for the probe: which are here, and at which scale they are measured."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plancc.executor.backend.cuda_host import VISIBLE, find_cards, visible_cards
from plancc.executor.machine import Card
from plancc.executor.probe_kinds import GIB, MIB, DeclaredDevice, Scale
from plancc.executor.probe_model import layer_kernels, model_bytes, usual_model
from plancc.ir.dtype import DType
from plancc.ir.errors import BadInput
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Device

if TYPE_CHECKING:
    import torch

_SIZES = tuple(MIB << power >> 1 for power in range(12))  # 512 KiB .. 1 GiB
_WIDTHS = (512, 1024, 2048, 4096, 8192)  # their kernels: 512 KiB .. 896 MiB
_HEADS = (2048, 4096)  # of 512 MiB and 1 GiB
_QUICK_WIDTHS, _QUICK_HEADS = (1024, 4096), (4096,)
_ROTATED = 4 * GIB  # of the narrowest, whose layers are counted, 1.1: 20 times a large cache
_LEAST_ROWS, _EXACT_ROWS = 64, 32  # of the smallest block of a prompt, and in float32
_PROMPT_WIDTH, _ATTENTION_ROWS, _ATTENTION_CHUNKS = 4096, 1024, 8
_WIRE_BYTES = 768 * MIB  # of NCCL, which took 690 and 712 MiB of two H200s on 2026-11-30


class CudaProbe:
    """KindProbe of CUDA cards: one process has them all, as in a run."""

    shares_process = True
    wire_bytes = _WIRE_BYTES

    def row_block(self, dtype: DType) -> int:
        return _EXACT_ROWS if dtype == "float32" else _LEAST_ROWS

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
        """Models that a small card has no room for are left out.

        Every width is compiled anew, which takes longer than to measure it.
        """
        room = device.free_bytes // 2
        widths = [width for width in (_QUICK_WIDTHS if is_quick else _WIDTHS)
                  if model_bytes(_model(width)) <= room] or [_WIDTHS[0]]  # fmt: skip
        heads = [width for width in (_QUICK_HEADS if is_quick else _HEADS)
                 if model_bytes(_model(width, has_head=True)) <= room]  # fmt: skip
        largest = max(size for width in widths for size in _kernels(width, width in heads))
        rows = [_LEAST_ROWS << power for power in range(7)]  # .. 4096
        return Scale(
            read_sizes=tuple(size for size in _SIZES if size <= largest),
            widths=tuple(widths),
            heads=tuple(heads),
            rotated_bytes=min(_ROTATED, room),
            prompt_width=min(_PROMPT_WIDTH, widths[-1]),
            matmul_rows=tuple(rows[:: 3 if is_quick else 1]),
            attention_rows=_ATTENTION_ROWS,
            attention_chunks=_ATTENTION_CHUNKS,
            tiny_total=4 * MIB,  # 100 layers: a step takes longer than its replay
            seconds=0.05 if is_quick else 0.15,
            batch_s=0.02,
        )

    def can_reach(self, source: "torch.device", target: "torch.device") -> bool:
        import torch  # the process that measures has it

        if source == target:
            return True
        return bool(torch.cuda.can_device_access_peer(source, target))


def _model(width: int, *, has_head: bool = False) -> ModelShape:
    """The smallest that is measured; in float32 it has twice the bytes, and is half of what is
    free at most."""
    return usual_model(width, "bfloat16", 0, has_head=has_head)


def _kernels(width: int, has_head: bool) -> list[float]:
    """Weight bytes of each kernel."""
    model = _model(width, has_head=has_head)
    return [size for size, _ in layer_kernels(model)] + [one.weight_bytes for one in model.blocks]
