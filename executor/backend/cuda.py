"""A rank on a CUDA device: buffers, steps and graphs. The kernels are plancc.kernels.gpu.

The llama family. Which kernel a row meets depends on its phase alone; kernels/gpu/README.md says
what each sums and where it rounds. A decode step is a CUDA graph, one for each number of rows (to a
power of two) and length (to a power of two); eager launches give the same bits.
"""

from typing import Any

import torch

from plancc.executor.backend.cuda_cache import allocate_cache
from plancc.executor.backend.cuda_limits import check_runnable
from plancc.executor.backend.cuda_scratch import allocate_scratch
from plancc.executor.backend.cuda_segment import Segments
from plancc.executor.backend.cuda_staging import Staging
from plancc.executor.backend.cuda_weights import allocate_weights
from plancc.executor.step import Step
from plancc.ir.errors import BadInput
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.ir.tensors import TensorPiece, rank_pieces
from plancc.kernels.gpu.sample import pick
from plancc.kernels.gpu.tilings import power_of_two

_LEAST_REACH = 128  # what decode attention takes at once where heads are of usual width


class CudaBackend:
    """Ranks on this process's current CUDA device; on the host where Triton interprets."""

    def __init__(self, device: str = "cuda", *, uses_graphs: bool = True) -> None:
        self._device, self._uses_graphs = device, uses_graphs

    def open(
        self,
        *,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        tiles: tuple[int, int],
        threads: int,
        group: Any = None,
    ) -> "CudaRank":
        """Allocate a rank. Raises BadInput for what its kernels do not serve."""
        pieces = rank_pieces(model, layers, blocks=blocks)
        check_runnable(model, runtime, layers, tiles)
        if group is not None:
            raise BadInput(f"{model.name}: a cuda device is no member of a TP group yet")
        if self._device == "cuda" and not torch.cuda.is_available():
            raise BadInput("this machine has no CUDA device that torch can open")
        return CudaRank(model, runtime, layers, blocks, pieces, torch.device(self._device),
                        uses_graphs=self._uses_graphs)  # fmt: skip


class CudaRank:
    """RankModel on a device. What `run` returns is valid until the next `run`.

    Rows stay on the device. Logits are in pinned memory of the host, and there when `run` returns.
    """

    def __init__(
        self,
        model: ModelShape,
        runtime: Runtime,
        layers: tuple[int, int],
        blocks: tuple[str, ...],
        pieces: tuple[TensorPiece, ...],
        device: torch.device,
        *,
        uses_graphs: bool,
    ) -> None:
        self._layers, self._pieces, self._device = layers, pieces, device
        self._runtime = runtime
        dtype: torch.dtype = getattr(torch, model.dtype)
        self._weights = allocate_weights(pieces, dtype, device)
        self._cache = allocate_cache(model, layers, runtime, device)
        self._scratch = allocate_scratch(model, runtime, model.layers[slice(*layers)],
                                         has_head="head" in blocks, device=device)  # fmt: skip
        slots = power_of_two(runtime.slots)
        self._staging = Staging(step_rows(slots, runtime.prefill_chunk), slots, self._cache, device)
        self._segments = Segments(model, runtime.context, self._weights, self._cache,
                                  self._scratch, self._staging)  # fmt: skip
        self._graphs: dict[Any, Any] = {}
        self._uses_graphs = uses_graphs and device.type == "cuda"
        self._logits = torch.zeros(0)
        if "head" in blocks:
            self._logits = torch.zeros(self._scratch["logits"].shape,
                                       pin_memory=device.type == "cuda")  # fmt: skip

    def pieces(self) -> tuple[TensorPiece, ...]:
        return self._pieces

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        return self._weights.views[piece.spec.name]

    def admit(self, slot: int) -> None:
        self._cache.admit(slot)

    def kv_digest(self, layer: int, slot: int, num_tokens: int) -> str:
        return self._cache.digest(layer, slot, num_tokens)

    def allocated_bytes(self) -> dict[str, int]:
        return {
            "weights": self._weights.layer_bytes(),
            "kv": self._cache.allocated_bytes,
            "blocks": self._weights.block_bytes(),
            "workspace": self._scratch.allocated_bytes,
        }

    def run(self, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
        assert self._layers[0] <= run.layers[0] <= run.layers[1] <= self._layers[1], run
        num_rows = step.num_rows
        padded = power_of_two(num_rows) if step.phase == "decode" else num_rows
        self._staging.send(step, padded)
        for slot, position in zip(step.slots, step.positions, strict=True):
            last = position if step.phase == "decode" else position + num_rows - 1
            assert self._cache.has(slot, last), f"slot {slot}: no page for {last}"
        if not run.embed:
            assert hidden is not None
            self._scratch["incoming"][:num_rows].copy_(hidden, non_blocking=True)
        wants = run.head and step.wants_logits
        if step.phase == "decode":
            self._decode(run, padded, max(step.positions), wants)
        else:
            self._segments.prompt(run, num_rows, step.slots[0], step.positions[0],
                                  wants_logits=wants)  # fmt: skip
        if not run.head:
            return self._scratch["hidden"][:num_rows]
        return self._read_logits((num_rows if step.phase == "decode" else 1) if wants else 0)

    def feed(self, run: Run, num_rows: int, longest: int) -> None:
        """One more greedy decode step of the rows staged last, without the host: the largest logit
        of each becomes its next token, one position on. `longest` bounds the positions."""
        self._graph(("feed", run, num_rows, self._reach(longest)), lambda: self._feed(
            run, num_rows, self._reach(longest)))  # fmt: skip

    def staged_tokens(self, num_rows: int) -> torch.Tensor:
        """On the device: the tokens that the next `feed` begins with."""
        return self._staging.token_ids[:num_rows]

    def _feed(self, run: Run, num_rows: int, reach: int) -> None:
        self._segments.decode(run, num_rows, reach, wants_logits=True)
        s = self._scratch
        pick(s["logits"][:num_rows], s["bests"], s["places"], s["counters"],
             self._staging.token_ids, self._staging.positions)  # fmt: skip

    def _decode(self, run: Run, num_rows: int, longest: int, wants: bool) -> None:
        reach = self._reach(longest)
        key = (run, num_rows, reach, wants)
        self._graph(key, lambda: self._segments.decode(run, num_rows, reach, wants_logits=wants))

    def _reach(self, position: int) -> int:
        """Tokens of rows up to a position, to a power of two, so that graphs are few."""
        return max(_LEAST_REACH, power_of_two(position + 1))

    def _graph(self, key: Any, launch: Any) -> None:
        """Replay what was captured under `key`, or run it now and capture it for the next time."""
        if not self._uses_graphs:
            launch()
            return
        if key in self._graphs:
            self._graphs[key].replay()
            return
        launch()  # compiles what is new; its results are this step's
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        self._graphs[key] = graph

    def _read_logits(self, num_rows: int) -> torch.Tensor:
        if num_rows:
            self._logits[:num_rows].copy_(self._scratch["logits"][:num_rows], non_blocking=True)
            if self._device.type == "cuda":
                torch.cuda.current_stream().synchronize()
        return self._logits[:num_rows]
