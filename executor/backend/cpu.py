"""A rank on a CPU device: buffers, tables and the order of kernels. The kernels are plancc.kernels.

The llama family. Which kernel a row meets depends on its phase alone; kernels/README.md says what
each sums and where it rounds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plancc.executor.backend.cpu_cache import CpuCache, allocate_cache
from plancc.executor.backend.cpu_limits import check_runnable
from plancc.executor.backend.cpu_memory import allocate, total_bytes
from plancc.executor.backend.cpu_records import Records
from plancc.executor.backend.cpu_weights import CpuWeights, allocate_weights
from plancc.executor.step import Step
from plancc.ir.buffers import PROMPT_BLOCK_ROWS, activation_buffers, rope_width
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.stages import (
    GROUPS_ENTER,
    GROUPS_HEAD,
    GROUPS_LAYER,
    GROUPS_LEAVE,
    ROWS_ENTER,
    ROWS_HEAD,
    ROWS_LAYER,
    ROWS_LEAVE,
    Stages,
    max_stages,
    segment_runner,
    stage_array,
)
from plancc.kernels.team import Team


class CpuBackend:
    """Ranks whose weights, KV and scratch lie in this process's memory."""

    def open(
        self,
        *,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        threads: int,
    ) -> "CpuRank":
        """Allocate a rank and compile its kernels. Raises BadInput for what they do not serve."""
        pieces = rank_pieces(model, layers, blocks=blocks)
        check_runnable(model, layers, tiles)
        team = Team(threads, max_stages(layers[1] - layers[0]))
        return CpuRank(model, runtime, layers, blocks, tiles, pieces, team)


@dataclass(frozen=True)
class _Phase:
    """A STEP record and the lists of stages it may name: (address, how many)."""

    step: Any
    enter: tuple[int, int]
    each_layer: tuple[int, int]
    leave: tuple[int, int]
    head: tuple[int, int]


class CpuRank:
    """RankModel on this host. What `run` returns is valid until the next `run`."""

    def __init__(
        self,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        pieces: tuple[TensorPiece, ...],
        team: Team,
    ) -> None:
        self._model, self._runtime, self._layers, self._team = model, runtime, layers, team
        self._pieces = pieces
        self._dtype: torch.dtype = getattr(torch, model.dtype)
        self._weights: CpuWeights = allocate_weights(pieces, self._dtype)
        self._cache: CpuCache = allocate_cache(model, layers, runtime)
        self._scratch = self._allocate_scratch("head" in blocks)
        rows = step_rows(runtime.slots, runtime.prefill_chunk)
        self._token_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int64)
        self._slots = np.zeros(rows, np.int64)
        self._records = Records(model, runtime, layers, tiles)
        self._records.fill_layers(self._weights, self._cache)
        self._layers_at = self._records.layers.ctypes.data
        self._rows = self._phase(ROWS_ENTER, ROWS_LAYER, ROWS_LEAVE, ROWS_HEAD)
        self._groups = self._phase(GROUPS_ENTER, GROUPS_LAYER, GROUPS_LEAVE, GROUPS_HEAD)
        self._runner = segment_runner()

    def pieces(self) -> tuple[TensorPiece, ...]:
        return self._pieces

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self._weights.parameter(piece)

    def admit(self, slot: int) -> None:
        self._cache.admit(slot)

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        return self._cache.digest(layer, slot, num_tokens)

    def allocated_bytes(self) -> dict[str, int]:
        return {
            "weights": self._weights.layer_bytes,
            "kv": self._cache.allocated_bytes,
            "blocks": self._weights.block_bytes,
            "workspace": total_bytes(self._scratch.values()),
        }

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        assert self._layers[0] <= run.layers[0] <= run.layers[1] <= self._layers[1], run
        self._cache.note(step.pages)
        if run.embed:
            self._token_ids[: step.num_rows] = step.token_ids
        else:
            assert hidden is not None
            assert hidden.dtype == self._dtype
            assert hidden.is_contiguous()
        if step.phase == "decode":
            return self._run_decode(run, step, hidden)
        return self._run_prompt(run, step, hidden)

    def _run_decode(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        num_rows = step.num_rows
        assert num_rows <= self._runtime.slots, "one row a slot"
        self._positions[:num_rows] = step.positions
        self._slots[:num_rows] = step.slots
        for slot, position in zip(step.slots, step.positions, strict=True):
            assert self._cache.has(slot, position), f"slot {slot}: no page for {position}"
        num_logits = num_rows if run.head and step.wants_logits else 0
        self._segment(self._rows, run, hidden, 0, num_rows, num_logits)
        return self._result(run, num_rows, num_logits)

    def _run_prompt(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        """Block by block through all layers, so that scratch is one block wide."""
        first, num_rows = step.positions[0], step.num_rows
        assert self._cache.has(step.slots[0], first + num_rows - 1), "no page for the last row"
        self._slots[0] = step.slots[0]
        num_logits = 1 if run.head and step.wants_logits else 0
        for row in range(0, num_rows, PROMPT_BLOCK_ROWS):
            count = min(PROMPT_BLOCK_ROWS, num_rows - row)
            self._positions[0] = first + row
            wanted = num_logits if row + count == num_rows else 0
            self._segment(self._groups, run, hidden, row, count, wanted)
        return self._result(run, num_rows, num_logits)

    def _segment(
        self, phase: _Phase, run: Run, hidden: torch.Tensor | None, row: int, count: int,
        num_logits: int,
    ) -> None:  # fmt: skip
        """Rows [row, row + count) of the step through the segment."""
        step, start = phase.step, row * self._model.hidden_size * self._dtype.itemsize
        step["num_rows"], step["num_logits"] = count, num_logits
        step["num_groups"] = -(-count // GROUP_ROWS)
        step["first_layer"] = run.layers[0] - self._layers[0]
        step["end_layer"] = run.layers[1] - self._layers[0]
        step["embedding"] = self._weights.address("embedding") if run.embed else 0
        step["token_ids"] = self._token_ids.ctypes.data + 8 * row
        step["hidden_in"] = hidden.data_ptr() + start if hidden is not None else 0
        step["hidden_out"] = self._scratch["hidden"].data_ptr() + start
        after = phase.head if num_logits else (0, 0) if run.head else phase.leave
        step["after"], step["num_after"] = after
        self._team.run(self._runner, step.ctypes.data, self._layers_at)

    def _result(self, run: Run, num_rows: int, num_logits: int) -> torch.Tensor:
        if run.head:
            return self._scratch["logits"][:num_logits]
        return self._scratch["hidden"][:num_rows]

    def _allocate_scratch(self, has_head: bool) -> dict[str, torch.Tensor]:
        """The buffers of ir.buffers: rows in the model's format, the rest flat float32."""
        model, slots = self._model, self._runtime.slots
        rows = step_rows(slots, self._runtime.prefill_chunk)
        sizes = activation_buffers(
            model, model.layers[slice(*self._layers)], rows, has_head=has_head, slots=slots
        )
        shapes = {name: ((size // 4,), torch.float32) for name, size in sizes.items()}
        scratch: dict[str, Any] = shapes | {"hidden": ((rows, model.hidden_size), self._dtype)}
        if has_head:
            scratch["logits"] = ((slots, model.vocab_size), torch.float32)
        return allocate(scratch)

    def _phase(self, enter: Stages, layer: Stages, leave: Stages, head: Stages) -> _Phase:
        step = self._records.step(self._weights, self._scratch)
        self._records.fill_rope(step, self._scratch.get("rope"),
                                rope_width(self._model.layers[slice(*self._layers)]))  # fmt: skip
        step["positions"] = self._positions.ctypes.data
        step["slots"] = self._slots.ctypes.data
        lists = [(self._records.keep(stage_array(stages)), len(stages))
                 for stages in (enter, layer, leave, head)]  # fmt: skip
        phase = _Phase(step, *lists)
        step["before"], step["num_before"] = phase.enter
        step["each_layer"], step["num_each_layer"] = phase.each_layer
        return phase
