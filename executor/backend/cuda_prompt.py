"""The kernels of a prompt chunk in their order, launched once and then made again from tapes.

A tape serves every chunk of about as many rows: its grids are filled up to whole blocks, and where
the chunk begins, in which slot and how many rows it has are numbers that its kernels are given.
Rows that only fill up have scratch of their own, which is read and written to no one's harm.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from plancc.executor.backend.cuda_cache import DeviceCache
from plancc.executor.backend.cuda_exchange import CudaExchange
from plancc.executor.backend.cuda_rows import LayerRows, Rows, tiles_of
from plancc.executor.backend.cuda_scratch import Scratch
from plancc.ir.instruction import Run
from plancc.ir.layers import Layer
from plancc.kernels.gpu.prompt_attention import prompt_attention
from plancc.kernels.gpu.prompt_down import prompt_down
from plancc.kernels.gpu.prompt_gate_up import prompt_gate_up
from plancc.kernels.gpu.prompt_linear import prompt_linear
from plancc.kernels.gpu.prompt_norm import norm
from plancc.kernels.gpu.prompt_tilings import filled_rows
from plancc.kernels.gpu.tape import Tapes

Tensor = torch.Tensor


@dataclass(frozen=True)
class _Chunk:
    """Rows of a slot at positions first, first + 1, ...; `filled` is what grids and views have."""

    filled: int
    first: int
    num_rows: int
    slot: int


@dataclass
class Prompts:
    """Launches what lies between entering a chunk's rows and its logits, of one rank."""

    layers: tuple[Layer, ...]
    eps: float
    weights: Mapping[int, Mapping[str, Tensor]]  # by layer
    cache: DeviceCache
    scratch: Scratch
    rows: LayerRows
    exchange: CudaExchange | None
    chunk_rows: int
    tapes: Tapes = field(default_factory=Tapes)

    def launch(self, run: Run, num_rows: int, slot: int, first: int) -> None:
        """The sum that the run begins with, if it does so, and its layers."""
        itemsize = self.scratch["hidden"].element_size()
        filled = min(filled_rows(num_rows, itemsize), self.chunk_rows)
        assert num_rows <= filled, f"a chunk of {num_rows} rows, room for {self.chunk_rows}"

        def launch(first: int, num_rows: int, slot: int) -> None:
            self._launch(run, _Chunk(filled, first, num_rows, slot))

        places = self.exchange.key if self.exchange else ()
        self.tapes.run((run, filled, *places), (first, num_rows, slot), launch)

    def _launch(self, run: Run, chunk: _Chunk) -> None:
        if self.exchange and self.exchange.is_pending:
            rows = self.rows.at(run.layers[0], chunk.filled)
            self.exchange.add(rows.hidden, num_rows=chunk.num_rows)
        for index in range(*run.layers):
            rows = self.rows.at(index, chunk.filled)
            if run.part != "mlp":
                self._mixer(run, rows, index, chunk)
            if run.part != "mixer":
                self._mlp(run, rows, index, chunk)

    def _mixer(self, run: Run, rows: Rows, index: int, chunk: _Chunk) -> None:
        w, cache, count = self.weights[index], self.cache, chunk.num_rows
        norm(rows.hidden, w["input_norm"], rows.gained, eps=self.eps, num_rows=count)
        prompt_linear(rows.gained, w["qkv"], w.get("qkv_bias"), None, rows.qkv, num_rows=count)
        kept = cache.layers[index]
        prompt_attention(rows.qkv, rows.angles, kept.pages, kept.keys, kept.values, rows.attended,
                         first=chunk.first, slot=chunk.slot, num_rows=count,
                         page_tokens=cache.page_tokens, capacity=kept.capacity,
                         window=kept.window, rotary_dim=self.rows.rotary(index))  # fmt: skip
        prompt_linear(rows.attended, w["output"], w.get("output_bias"), rows.hidden, rows.hidden,
                      num_rows=count)  # fmt: skip
        norm(rows.hidden, w["mlp_norm"], self._normed(run, rows), eps=self.eps, num_rows=count)

    def _mlp(self, run: Run, rows: Rows, index: int, chunk: _Chunk) -> None:
        w, count, waiting = self.weights[index], chunk.num_rows, self.scratch.waiting
        prompt_gate_up(self._normed(run, rows), w["gate_up"], rows.activated, num_rows=count)
        bounds, group = tiles_of(self.layers[index])
        if self.exchange:
            self.exchange.prompt(rows.activated, w["down"], bounds, group, waiting=waiting,
                                 num_rows=count)  # fmt: skip
        else:
            prompt_down(rows.activated, w["down"], rows.hidden, bounds=bounds, group=group,
                        waiting=waiting, num_rows=count)  # fmt: skip

    def _normed(self, run: Run, rows: Rows) -> Tensor:
        """The norm before the MLP. Where that is another segment's: what an owner sends, or where
        `bring` puts it."""
        if self.exchange is None or run.part == "whole":
            return rows.gained
        place = self.exchange.normed
        place = self.scratch["incoming"] if place is None else place
        return place[: len(rows.hidden)]
