"""What the executor needs of a kind of device. One module here implements it for each kind."""

from typing import Protocol

import torch

from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tensors import TensorPiece


class RankModel(Protocol):
    """Weights, KV and scratch of one rank, allocated once when opened; no step allocates more."""

    def pieces(self) -> tuple[TensorPiece, ...]:
        """What must be written before the first step, in load order."""

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        """A view on the device, of the piece's shape and the model's dtype, for the loader to fill.

        Fused matrices (q, k and v; gate and up) are views into one buffer.
        """

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        """Run one segment.

        hidden: [rows, hidden_size] from Recv or from this rank's last segment, None where the
        segment embeds. Returns rows of the same shape; or fp32 logits [1 or rows, vocab_size]
        where the segment has the head and the step wants them ([0, vocab_size] where not).
        """

    def admit(self, slot: int) -> None:
        """Forget all state of a slot before its first chunk."""

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        """sha256 of the layer's K rows, then V rows, of positions [0, num_tokens) (or the last
        ones a window keeps), in position order: independent of pages."""

    def allocated_bytes(self) -> dict[str, int]:
        """Bytes held, by ledger column: weights, kv, blocks, workspace."""


class Backend(Protocol):
    def open(
        self,
        *,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        threads: int,
    ) -> RankModel:
        """Allocate a rank of the plan on this backend's device."""
