"""What the executor needs of a kind of device. One module here implements it for each kind."""

from collections.abc import Sequence
from typing import Protocol

import torch

from plancc.executor.group import Group
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
        """Bytes held, by ledger column: weights, kv, blocks, workspace; and hop_buffers for what
        the rank of a group exchanges."""


class GroupModel(RankModel, Protocol):
    """A rank of a TP group. Its `run` differs so:

    A segment with a layer ends with that layer's partial rows: float32 [rows, roots, hidden_size],
    one for each maximal subtree of the rank's tiles, in tile order. They stay as they are until
    the second segment after that ends so. With part `mixer` it ends with the layer's normed rows
    [rows, hidden_size] instead, and part `mlp` begins with such rows.
    """

    def take(self, layer: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Every rank's partial rows, in rank order, for the next `run` to add to the residual.

        They are read then, in the order of the tile tree. Returns the rows to give to that run.
        """


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
        group: Group | None = None,
    ) -> RankModel:
        """Allocate a rank of the plan on this backend's device; a GroupModel where it has a group.

        `group` is not passed for a rank that is a stage by itself.
        """
