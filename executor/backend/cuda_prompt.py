"""The kernels of a prompt chunk's layers in their order.

One graph of them serves every chunk of about as many rows: they are filled up to whole blocks, and
where the chunk begins, how many rows it has and in which slot are numbers that kernels read on the
device. Rows that only fill up have scratch of their own; nobody reads what is computed there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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

Tensor = torch.Tensor


@dataclass
class Prompts:
    """Launches what lies between entering a chunk's rows and its logits, of one rank."""

    layers: tuple[Layer, ...]
    eps: float
    weights: Mapping[int, Mapping[str, Tensor]]  # by layer
    cache: DeviceCache
    scratch: Scratch
    rows: LayerRows
    chunk: Tensor  # which rows a step has: what prompt_attention reads
    exchange: CudaExchange | None

    def launch(self, run: Run, filled: int) -> None:
        """The sum that the run begins with, if it does so, and its layers."""
        if self.exchange and self.exchange.is_pending:
            self.exchange.add(self.rows.at(run.layers[0], filled).hidden)
        for index in range(*run.layers):
            rows = self.rows.at(index, filled)
            if run.part != "mlp":
                self._mixer(run, rows, index)
            if run.part != "mixer":
                self._mlp(run, rows, index)

    def _mixer(self, run: Run, rows: Rows, index: int) -> None:
        w, cache = self.weights[index], self.cache
        norm(rows.hidden, w["input_norm"], rows.gained, eps=self.eps)
        prompt_linear(rows.gained, w["qkv"], w.get("qkv_bias"), None, rows.qkv)
        kept = cache.layers[index]
        prompt_attention(rows.qkv, rows.angles, kept.pages, kept.keys, kept.values, rows.attended,
                         self.chunk, page_tokens=cache.page_tokens, capacity=kept.capacity,
                         window=kept.window, rotary_dim=self.rows.rotary(index))  # fmt: skip
        prompt_linear(rows.attended, w["output"], w.get("output_bias"), rows.hidden, rows.hidden)
        norm(rows.hidden, w["mlp_norm"], self._normed(run, rows), eps=self.eps)

    def _mlp(self, run: Run, rows: Rows, index: int) -> None:
        w, waiting = self.weights[index], self.scratch.waiting
        prompt_gate_up(self._normed(run, rows), w["gate_up"], rows.activated)
        bounds, group = tiles_of(self.layers[index])
        if self.exchange:
            self.exchange.prompt(rows.activated, w["down"], bounds, group, waiting=waiting)
        else:
            prompt_down(rows.activated, w["down"], rows.hidden, bounds=bounds, group=group,
                        waiting=waiting)  # fmt: skip

    def _normed(self, run: Run, rows: Rows) -> Tensor:
        """The norm before the MLP. Where that is another segment's: what an owner sends, or where
        `bring` puts it."""
        if self.exchange is None or run.part == "whole":
            return rows.gained
        place = self.exchange.normed
        place = self.scratch["incoming"] if place is None else place
        return place[: len(rows.hidden)]
