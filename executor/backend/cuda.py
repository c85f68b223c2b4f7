"""A rank on a CUDA device: buffers, steps and graphs. The kernels are plancc.kernels.gpu.

The llama family. Which kernel a row meets depends on its phase alone; kernels/gpu/README.md says
what each sums and where it rounds. A rank has a stream of its own, and the host waits for it only
where it reads. A decode step is a CUDA graph for each number of rows and length (to a power of
two), a chunk of a prompt for each number of blocks: of all ranks of this process, or of a segment.
Eager launches give the same bits.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch

from plancc.executor.backend.api import Link
from plancc.executor.backend.cuda_arena import rank_arena
from plancc.executor.backend.cuda_cache import allocate_cache
from plancc.executor.backend.cuda_devices import device_of, new_stream
from plancc.executor.backend.cuda_drawn import DeviceTokens, Drawer
from plancc.executor.backend.cuda_exchange import CudaExchange
from plancc.executor.backend.cuda_graphs import SegmentGraphs, StepGraphs
from plancc.executor.backend.cuda_limits import check_runnable
from plancc.executor.backend.cuda_link import CudaLink
from plancc.executor.backend.cuda_scratch import allocate_scratch
from plancc.executor.backend.cuda_segment import Segments
from plancc.executor.backend.cuda_staging import Staging
from plancc.executor.backend.cuda_stamps import DeviceClock, EventStamp
from plancc.executor.backend.cuda_weights import allocate_weights
from plancc.executor.backend.cuda_wire import CudaWires
from plancc.executor.group import Group
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.kernels.gpu.tilings import power_of_two

_LEAST_REACH = 128  # what decode attention takes at once where heads are of usual width


class CudaBackend(CudaWires):
    """Ranks on this machine's CUDA devices; on the host where Triton interprets."""

    def __init__(self, device: str = "cuda", *, uses_graphs: bool = True) -> None:
        self._device, self._uses_graphs = device, uses_graphs

    def open(
        self, *, model: ModelShape, runtime: Runtime, layers: tuple[int, int],
        blocks: tuple[str, ...], tiles: tuple[int, int], threads: int, uuid: str | None = None,
        group: Group | None = None,
    ) -> "CudaRank":  # fmt: skip
        """Allocate a rank. Raises BadInput for what its kernels do not serve."""
        pieces = rank_pieces(model, layers, blocks=blocks, share=tiles if group else None,
                             has_mixer=group is None or group.holds_rows)  # fmt: skip
        check_runnable(model, runtime, layers, tiles, group)
        device = device_of(uuid) if self._device == "cuda" else torch.device(self._device)
        return CudaRank(model, runtime, layers, blocks, pieces, device, group,
                        uses_graphs=self._uses_graphs)  # fmt: skip

    def link(
        self, source: Any, target: Any, *, shape: tuple[int, ...], dtype: torch.dtype,
        is_staged: bool, in_place: bool,
    ) -> CudaLink:  # fmt: skip
        return CudaLink(source, target, shape=shape, dtype=dtype, is_staged=is_staged,
                        in_place=in_place)  # fmt: skip

    def recorder(self, models: Sequence[Any], links: Sequence[Link]) -> StepGraphs | None:
        uses_graphs = self._uses_graphs and self._device == "cuda"
        return StepGraphs(cast("Sequence[CudaRank]", models), links) if uses_graphs else None


class CudaRank:
    """RankModel on a device. What `run` returns lies there, and is valid until the next `run`."""

    stamps_are_free = False

    def __init__(
        self, model: ModelShape, runtime: Runtime, layers: tuple[int, int], blocks: tuple[str, ...],
        pieces: tuple[TensorPiece, ...], device: torch.device, group: Group | None, *,
        uses_graphs: bool,
    ) -> None:  # fmt: skip
        self.num_layers, self._pieces, self.device = layers[1] - layers[0], pieces, device
        self.has_head, is_cuda = "head" in blocks, device.type == "cuda"
        self.stream = new_stream(device) if is_cuda else None
        dtype: torch.dtype = getattr(torch, model.dtype)
        held = layers if group is None or group.holds_rows else (layers[0], layers[0])
        arena = rank_arena(model, runtime, layers, held, pieces, device, has_head=self.has_head)
        self._arena_bytes, self._weights = arena.size_bytes, allocate_weights(pieces, dtype, arena)
        self._scratch = allocate_scratch(model, runtime, model.layers[slice(*layers)],
                                         has_head=self.has_head, arena=arena)  # fmt: skip
        self._cache = allocate_cache(model, held, runtime, self._scratch, arena)
        slots = power_of_two(runtime.slots)
        self._staging = Staging(self._scratch["control"], slots, self._cache, self.stream)
        rows = step_rows(runtime.slots, runtime.prefill_chunk)
        self.exchange = (CudaExchange(group, rows, runtime.slots, model.hidden_size, dtype, device)
                         if group else None)  # fmt: skip
        self.graphs = SegmentGraphs(is_used=uses_graphs, is_cuda=is_cuda)
        self._segments = Segments(model, runtime.context, self._weights, self._cache,
                                  self._scratch, self._staging, self.graphs, self.exchange,
                                  runtime.prefill_chunk)  # fmt: skip
        self._uses_graphs = uses_graphs
        self._clock = DeviceClock(self.stream) if self.stream else None
        self._begun: Step | None = None
        self._checked: Step | None = None
        if self.has_head:
            self._drawer = Drawer(self._scratch, self.stream)
            self._logits = torch.zeros(self._scratch["logits"].shape, pin_memory=is_cuda)
        if is_cuda:
            torch.cuda.synchronize(device)  # what was zeroed was so on another stream

    def on_stream(self) -> AbstractContextManager[Any]:
        """Launches within are of this rank."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def pieces(self) -> tuple[TensorPiece, ...]:
        return self._pieces

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self._weights.views[piece.spec.name]

    def admit(self, slot: int) -> None:
        self._cache.admit(slot)

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        self.wait()
        return self._cache.digest(layer, slot, num_tokens)

    def allocated_bytes(self) -> dict[str, int]:
        held = {"weights": self._weights.layer_bytes(), "kv": self._cache.allocated_bytes,
                "blocks": self._weights.block_bytes()}  # fmt: skip
        held["workspace"] = self._arena_bytes - sum(held.values())
        return held | {"hop_buffers": self.exchange.allocated_bytes if self.exchange else 0}

    def peak_bytes(self) -> int | None:
        """Of torch's allocator, for this rank and its neighbours."""
        return torch.cuda.max_memory_allocated(self.device) if self.stream else None

    def device_name(self) -> str | None:
        return torch.cuda.get_device_name(self.device) if self.stream else None

    def begin(self, step: Step) -> None:
        if step is self._begun:
            return
        self._begun = step
        padded = power_of_two(step.num_rows) if step.phase == "decode" else step.num_rows
        with self.on_stream():
            self._staging.send(step, padded)

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        assert step is self._begun, "a step is begun before it runs"
        num_rows, wants = self._num_rows(step), run.head and step.wants_logits
        self._check_pages(step)
        with self.on_stream():
            has_sum = self.exchange is not None and self.exchange.begin(run)
            if not run.embed and not has_sum:
                assert hidden is not None
                self._segments.incoming = self._incoming(run, step, hidden)
            if step.phase == "decode":
                self._decode(run, power_of_two(num_rows), max(step.positions), wants)
            else:
                self._segments.prompt(run, num_rows, wants_logits=wants)
        ended = self.exchange.end(run, num_rows) if self.exchange else None
        if ended is not None:
            return ended
        if not run.head:
            return self._scratch["hidden"][:num_rows]
        return self._scratch["logits"][: (num_rows if step.phase == "decode" else 1) * wants]

    def take(self, layer: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """As GroupModel says; the parts may lie on other devices that this one can read."""
        assert self.exchange is not None, "a rank of a TP group"
        self.exchange.take(parts)
        return self._segments.rows.at(layer, parts[0].shape[0]).hidden

    def read(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits come through pinned memory that is there once."""
        is_logits = self.has_head and rows.data_ptr() == self._scratch["logits"].data_ptr()
        if not is_logits:
            with self.on_stream():
                return rows.cpu()
        with self.on_stream():
            self._logits[: len(rows)].copy_(rows, non_blocking=True)
        self.wait()
        return self._logits[: len(rows)]

    def draw(self, logits: torch.Tensor) -> DeviceTokens:
        with self.on_stream():
            return self._drawer.draw(logits)

    def now(self) -> EventStamp:
        assert self._clock is not None, "stamps are a device's"
        return self._clock.now()

    def set_clock(self) -> None:
        if self._clock is not None:
            self._clock.set()

    def wait(self) -> None:
        if self.stream is not None:
            self.stream.synchronize()

    def reach(self, position: int) -> int:
        """Tokens of rows up to a position, to a power of two, so that graphs are few."""
        return max(_LEAST_REACH, power_of_two(position + 1))

    def filled(self, num_rows: int) -> int:
        """Rows of a chunk that are computed for so many."""
        return self._segments.filled(num_rows)

    def _num_rows(self, step: Step) -> int:
        """Rows that come and go: of a chunk that a graph is made of, for all chunks like it."""
        if step.phase == "decode" or not self.graphs.is_paused:
            return step.num_rows
        return self.filled(step.num_rows)

    def _incoming(self, run: Run, step: Step, hidden: torch.Tensor) -> torch.Tensor:
        """Where a segment reads its rows: where they are, if the kernels can and nothing else will
        stand there when their launches are repeated; else in scratch."""
        if run.part == "mlp":
            assert self.exchange is not None
            return self.exchange.bring(self._num_rows(step), hidden, self._scratch["incoming"])
        is_whole = step.phase == "prompt" or step.num_rows == power_of_two(step.num_rows)
        is_fixed = step.phase == "prompt" or self.graphs.is_paused or not self._uses_graphs
        if hidden.device == self.device and is_whole and is_fixed:
            return hidden
        here = self._scratch["incoming"]
        here[: len(hidden)].copy_(hidden, non_blocking=True)
        return here

    def _check_pages(self, step: Step) -> None:
        """The one allocator gave a page for every row; asked in a step's first run."""
        if step is self._checked:
            return
        self._checked = step
        for slot, position in zip(step.slots, step.positions, strict=True):
            last = position if step.phase == "decode" else position + step.num_rows - 1
            assert self._cache.has(slot, last), f"slot {slot}: no page for {last}"

    def _decode(self, run: Run, num_rows: int, longest: int, wants: bool) -> None:
        reach = self.reach(longest)

        def launch() -> None:
            self._segments.decode(run, num_rows, reach, wants_logits=wants)

        key = (run, num_rows, reach, wants, self.exchange.key if self.exchange else ())
        self.graphs.run(key, launch, num_layers=run.layers[1] - run.layers[0])
