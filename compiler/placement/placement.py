"""What the solver answers: the shape of a placement, before it becomes a plan."""

from dataclasses import dataclass
from typing import Literal

from plancc.ir.plan import Alternative, Proof


@dataclass(frozen=True)
class PlacedStage:
    """Layers [first, end) on one device, or on the ranks of a TP group.

    `devices` are device names, one a rank; `tiles` gives each rank's run of MLP tiles (all of
    them for one device). `blocks` lie on the first rank's device.
    """

    layers: tuple[int, int]
    devices: tuple[str, ...]
    tiles: tuple[tuple[int, int], ...]
    mixer: Literal["single", "replicated", "owned"] = "single"
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """A chosen shape with its proof. `context` is the asked one, or the largest found."""

    stages: tuple[PlacedStage, ...]
    context: int
    proof: Proof
    alternatives: tuple[Alternative, ...] = ()

    @property
    def head_stage(self) -> int:
        """Index of the stage that holds the head; the last where the model names no head."""
        holders = [i for i, stage in enumerate(self.stages) if "head" in stage.blocks]
        return holders[0] if holders else len(self.stages) - 1
