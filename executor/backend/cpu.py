"""A rank on a CPU device: buffers, tables and the order of kernels. The kernels are plancc.kernels.

The llama family. Which kernel a row meets depends on its phase alone; kernels/README.md says what
each sums and where it rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from plancc.executor.backend.cpu_cache import CpuCache, allocate_cache
from plancc.executor.backend.cpu_exchange import CpuExchange
from plancc.executor.backend.cpu_limits import check_runnable
from plancc.executor.backend.cpu_lists import Lists, lists_of, stage_lists
from plancc.executor.backend.cpu_memory import total_bytes
from plancc.executor.backend.cpu_records import SEGMENT_OFFSET, TELL_SEGMENT, Records
from plancc.executor.backend.cpu_scratch import allocate_scratch
from plancc.executor.backend.cpu_weights import CpuWeights, allocate_weights
from plancc.executor.backend.host import HostLinks, HostRank
from plancc.executor.group import Group
from plancc.executor.step import Phase, Step
from plancc.ir.buffers import PROMPT_BLOCK_ROWS, rope_width
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.kernels.panels import GROUP_ROWS
from plancc.kernels.stages import max_stages, segment_runner
from plancc.kernels.team import Team


class CpuBackend(HostLinks):
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
        uuid: str | None = None,
        group: Group | None = None,
    ) -> "CpuRank":
        """Allocate a rank and compile its kernels. Raises BadInput for what they do not serve."""
        has_mixer = group is None or group.holds_rows
        pieces = rank_pieces(model, layers, share=tiles if group else None, blocks=blocks,
                             has_mixer=has_mixer)  # fmt: skip
        check_runnable(model, layers)
        team = Team(threads, max_stages(layers[1] - layers[0]))
        cache = allocate_cache(model, layers if has_mixer else (layers[0], layers[0]), runtime)
        rank = CpuRank(model, runtime, layers, blocks, pieces, cache, team, group)
        rank.tell_kernels(tiles)
        return rank


@dataclass(frozen=True)
class _Told:
    """A STEP record of a phase, as memory, and the lists of stages that it may name."""

    memory: memoryview
    address: int
    lists: Lists


class CpuRank(HostRank):
    """RankModel on this host, and GroupModel where it has a group.

    Rows that `run` returns are valid until the next `run`, partial rows until that after it.
    """

    def __init__(
        self,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        pieces: tuple[TensorPiece, ...],
        cache: CpuCache,
        team: Team,
        group: Group | None,
    ) -> None:
        self._model, self._runtime, self._layers, self._team = model, runtime, layers, team
        self._pieces, self._cache = pieces, cache
        self._dtype: torch.dtype = getattr(torch, model.dtype)
        self._weights: CpuWeights = allocate_weights(pieces, self._dtype)
        self._scratch = allocate_scratch(model, layers, runtime, has_head="head" in blocks)
        rows = step_rows(runtime.slots, runtime.prefill_chunk)
        self._exchange = CpuExchange(group, rows, model.hidden_size, self._dtype) if group else None
        self._token_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int64)
        self._slots = np.zeros(rows, np.int64)
        self._row_bytes = model.hidden_size * self._dtype.itemsize
        self._token_ids_at: int = self._token_ids.ctypes.data
        self._hidden_at = self._scratch["hidden"].data_ptr()
        self._embedding_at = self._weights.address("embedding")
        self._down_bias = {
            layer: self._weights.address(f"{layer}.down_bias") for layer in range(*layers)
        }
        self._views: dict[int, torch.Tensor] = {}

    def tell_kernels(self, tiles: tuple[int, int]) -> None:
        """Write the records that kernels read; once, before anything runs."""
        self._records = Records(self._model, self._runtime, self._layers, tiles)
        self._records.fill_layers(self._weights, self._cache)
        self._layers_at = self._records.layers.ctypes.data
        self._told = {phase: self._tell(phase) for phase in ("decode", "prompt")}
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
        held = {
            "weights": self._weights.layer_bytes,
            "kv": self._cache.allocated_bytes,
            "blocks": self._weights.block_bytes,
            "workspace": total_bytes(self._scratch.values()),
        }
        return held | ({"hop_buffers": self._exchange.allocated_bytes} if self._exchange else {})

    def take(self, layer: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        assert self._exchange is not None
        self._exchange.take(parts, bias=self._down_bias[layer])
        return self._hidden_rows(parts[0].shape[0])

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        first, end = run.layers
        assert first == end or self._layers[0] <= first < end <= self._layers[1], run
        self._cache.note(step.pages)
        if run.embed:
            self._token_ids[: step.num_rows] = step.token_ids
        else:
            assert hidden is not None
            assert hidden.dtype == self._dtype
            assert hidden.is_contiguous()
        if self._exchange and first != end and run.part != "mixer":
            self._exchange.turn()
        num_logits = (self._run_decode if step.phase == "decode" else self._run_prompt)(
            run, step, hidden
        )
        return self._result(run, step.num_rows, num_logits)

    def _run_decode(self, run: Run, step: Step, hidden: torch.Tensor | None) -> int:
        """Returns how many rows of logits there are."""
        num_rows = step.num_rows
        assert num_rows <= self._runtime.slots, "one row a slot"
        self._positions[:num_rows] = step.positions
        self._slots[:num_rows] = step.slots
        for slot, position in zip(step.slots, step.positions, strict=True):
            assert self._cache.has(slot, position), f"slot {slot}: no page for {position}"
        num_logits = num_rows if run.head and step.wants_logits else 0
        self._segment(self._told["decode"], run, hidden, 0, num_rows, num_logits)
        return num_logits

    def _run_prompt(self, run: Run, step: Step, hidden: torch.Tensor | None) -> int:
        """Block by block through all layers, so that scratch is one block wide."""
        first, num_rows = step.positions[0], step.num_rows
        assert self._cache.has(step.slots[0], first + num_rows - 1), "no page for the last row"
        self._slots[0] = step.slots[0]
        num_logits = 1 if run.head and step.wants_logits else 0
        for row in range(0, num_rows, PROMPT_BLOCK_ROWS):
            count = min(PROMPT_BLOCK_ROWS, num_rows - row)
            self._positions[0] = first + row
            wanted = num_logits if row + count == num_rows else 0
            self._segment(self._told["prompt"], run, hidden, row, count, wanted)
        return num_logits

    def _segment(
        self, told: _Told, run: Run, hidden: torch.Tensor | None, row: int, count: int,
        num_logits: int,
    ) -> None:  # fmt: skip
        """Rows [row, row + count) of the step through the segment."""
        start, exchange = row * self._row_bytes, self._exchange
        places = exchange.enter(row, start) if exchange else (0, 0, 0)
        adds = exchange is not None and exchange.is_pending
        before, each, after = lists_of(run, adds=adds, num_logits=num_logits)
        lists = told.lists
        TELL_SEGMENT.pack_into(
            told.memory, SEGMENT_OFFSET,
            *lists[before], *lists[each], *lists[after],
            run.layers[0] - self._layers[0], run.layers[1] - self._layers[0],
            count, -(-count // GROUP_ROWS), num_logits,
            self._embedding_at if run.embed else 0, self._token_ids_at + 8 * row,
            hidden.data_ptr() + start if hidden is not None else 0, self._hidden_at + start,
            *places,
        )  # fmt: skip
        self._team.run(self._runner, told.address, self._layers_at)

    def _result(self, run: Run, num_rows: int, num_logits: int) -> torch.Tensor:
        if self._exchange:
            self._exchange.is_pending &= run.part == "mlp"  # else it was added
            if run.layers[0] != run.layers[1]:
                return self._exchange.rows(num_rows, are_normed=run.part == "mixer")
        if run.head:
            return self._scratch["logits"][:num_logits]
        return self._hidden_rows(num_rows)

    def _hidden_rows(self, num_rows: int) -> torch.Tensor:
        """A view, made once for each number of rows that a decode step has."""
        if num_rows not in self._views:
            view = self._scratch["hidden"][:num_rows]
            if num_rows > self._runtime.slots:
                return view
            self._views[num_rows] = view
        return self._views[num_rows]

    def _tell(self, phase: Phase) -> _Told:
        step = self._records.step(self._weights, self._scratch)
        self._records.fill_rope(step, self._scratch.get("rope"),
                                rope_width(self._model.layers[slice(*self._layers)]))  # fmt: skip
        step["positions"] = self._positions.ctypes.data
        step["slots"] = self._slots.ctypes.data
        if self._exchange:
            self._exchange.tell(step)
        lists = stage_lists(phase, self._records.keep, in_group=self._exchange is not None)
        address = self._records.keep(step)
        return _Told(step.view(np.uint8).data, address, lists)
