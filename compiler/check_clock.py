"""The clock of `plancc check`: times of a plan's stages, from layers, curves, links and exchanges.

compute   layers, and the embedding and head on the stage's first rank. In a replicated group a
          layer takes its slowest rank; in an owned one the owner's mixer, then the slowest MLP.
          What all ranks compute at once in a decode step is slowed as their exchange's row says
exchange  partial rows after each cut MLP and an owner's rows before it (as measured, or by the
          links), and the embedded rows that the first rank of a replicated first stage spreads
hop       to every rank of the next stage that holds rows; from the last stage the row or only
          its token goes back, first rank to first rank
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from plancc.compiler.check_rank_clock import RankClock
from plancc.compiler.check_transfers import link_ns, together_ns
from plancc.ir.curve import Curve
from plancc.ir.groups import (
    Pair,
    exchange_pairs,
    hop_pairs,
    partial_row_bytes,
    share_roots,
    spread_pairs,
)
from plancc.ir.layers import Layer
from plancc.ir.plan import Plan, Stage, StageTime
from plancc.ir.sizes import hidden_row_bytes
from plancc.ir.topology import Device, Topology

TOKEN_BACK_BYTES = 64


@dataclass(frozen=True)
class Clock:
    """Predicted times of one plan on one topology."""

    plan: Plan
    topology: Topology

    def decode_stages(self, rows: int) -> tuple[StageTime, ...]:
        """Compute, exchange and outgoing hop of each stage for a decode step of so many rows."""
        return self._stages(rows, is_prompt=False)

    def prefill_stages(self, rows: int) -> tuple[StageTime, ...] | None:
        """The same for a chunk of a prompt; None where a device has no known matmul rate."""
        devices = [device for stage in self.plan.stages for device in self._devices(stage)]
        if any(device.matmul_tflops(rows, self.plan.model.dtype) is None for device in devices):
            return None
        return self._stages(rows, is_prompt=True)

    def _stages(self, rows: int, *, is_prompt: bool) -> tuple[StageTime, ...]:
        return tuple(
            StageTime(
                compute_ns=self._compute_ns(stage, rows, is_prompt),
                exchange_ns=self._exchange_ns(index, rows),
                hop_ns=self._hop_ns(index, rows),
            )
            for index, stage in enumerate(self.plan.stages)
        )

    def _devices(self, stage: Stage) -> list[Device]:
        found = [self.topology.device(rank.device) for rank in stage.ranks]
        return [device for device in found if device is not None]

    def _compute_ns(self, stage: Stage, rows: int, is_prompt: bool) -> int:
        clocks = [RankClock(self.plan, device, rows, is_prompt) for device in self._devices(stage)]
        layers = self.plan.model.layers[slice(*stage.layers)]
        row = self.topology.exchange([rank.device for rank in stage.ranks])
        slow_milli = 1000 if row is None or is_prompt else round(row.slowdown * 1000)
        spent = sum(_layer_ns(stage, clocks, layer, slow_milli) for layer in layers)
        return spent + clocks[0].ends_ns(stage.blocks)

    def _exchange_ns(self, index: int, rows: int) -> int:
        stage, row_bytes = self.plan.stages[index], rows * hidden_row_bytes(self.plan.model)
        if stage.mixer == "single":
            return 0
        first, end = stage.layers
        spent = (end - first) * self._layer_exchange_ns(stage, rows, row_bytes)
        if index == 0:
            pairs = spread_pairs(stage.mixer, len(stage.ranks))
            spent += self._pairs_ns(stage, stage, pairs, row_bytes)
        return spent

    def _layer_exchange_ns(self, stage: Stage, rows: int, row_bytes: int) -> int:
        roots = share_roots([rank.mlp_tiles for rank in stage.ranks])
        parts = [rows * partial_row_bytes(self.plan.model, count) for count in roots]
        names = [rank.device for rank in stage.ranks]
        measured = self.topology.exchange(names)
        if stage.mixer == "replicated" and measured is not None:
            return measured.curve().ns(max(parts))
        if stage.mixer == "owned" and measured is not None and measured.owned_points is not None:
            curve = Curve(measured.owned_points)
            return ceil(Fraction(curve.ns(row_bytes) + curve.ns(max(parts[1:])), 2))
        pairs = exchange_pairs(stage.mixer, len(names))
        spent = together_ns(self.topology, [(names[a], names[b], parts[a]) for a, b in pairs])
        if stage.mixer == "owned":
            helpers = [(0, rank) for rank in range(1, len(names))]
            spent += self._pairs_ns(stage, stage, helpers, row_bytes)
        return spent

    def _hop_ns(self, index: int, rows: int) -> int:
        stages, row_bytes = self.plan.stages, rows * hidden_row_bytes(self.plan.model)
        if index + 1 < len(stages):
            here, there = stages[index], stages[index + 1]
            pairs = hop_pairs((here.mixer, len(here.ranks)), (there.mixer, len(there.ranks)))
            return self._pairs_ns(here, there, pairs, row_bytes)
        if len(stages) == 1:
            return 0
        size = row_bytes if "head" in stages[0].blocks else TOKEN_BACK_BYTES
        ends = (stages[-1].ranks[0].device, stages[0].ranks[0].device)
        return link_ns(self.topology, (*ends, size))

    def _pairs_ns(self, source: Stage, target: Stage, pairs: Iterable[Pair], size: int) -> int:
        rows = [(source.ranks[a].device, target.ranks[b].device, size) for a, b in pairs]
        return together_ns(self.topology, rows)


def _layer_ns(stage: Stage, clocks: list[RankClock], layer: Layer, slow_milli: int) -> int:
    if stage.mixer == "single":
        return clocks[0].mixer_ns(layer) + clocks[0].mlp_ns(layer, None)
    shares = [
        clock.mlp_ns(layer, rank.mlp_tiles) for clock, rank in zip(clocks, stage.ranks, strict=True)
    ]
    if stage.mixer == "owned":
        return clocks[0].mixer_ns(layer) + _slowed_ns(max(shares), slow_milli)
    mixers = [clock.mixer_ns(layer) for clock in clocks]
    slowest = max(mixer + share for mixer, share in zip(mixers, shares, strict=True))
    return _slowed_ns(slowest, slow_milli)


def _slowed_ns(alone_ns: int, slow_milli: int) -> int:
    return ceil(Fraction(alone_ns * slow_milli, 1000))
