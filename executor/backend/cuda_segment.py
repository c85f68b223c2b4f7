"""The kernels of a segment in their order, for decode rows and for prompt rows."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from plancc.executor.backend.cuda_cache import DeviceCache
from plancc.executor.backend.cuda_exchange import CudaExchange
from plancc.executor.backend.cuda_graphs import SegmentGraphs
from plancc.executor.backend.cuda_prompt import Prompts
from plancc.executor.backend.cuda_rows import LayerRows, Rows, tiles_of
from plancc.executor.backend.cuda_scratch import Scratch
from plancc.executor.backend.cuda_staging import Staging
from plancc.executor.backend.cuda_weights import DeviceWeights
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.tiles import tile_bounds
from plancc.kernels.gpu.attention import attention
from plancc.kernels.gpu.card import Card, card_of
from plancc.kernels.gpu.enter import enter
from plancc.kernels.gpu.join import join
from plancc.kernels.gpu.linear import linear
from plancc.kernels.gpu.mlp import gate_up
from plancc.kernels.gpu.prompt_tilings import filled_rows
from plancc.kernels.gpu.tilings import Tiling, tiling

Tensor = torch.Tensor


@dataclass
class Segments:
    """Launches segments of one rank; computes nothing itself.

    In a TP group a segment with a layer ends with the layer's partial rows, in the exchange's slot,
    and one that follows an exchange begins with the sum of everybody's. Part `mixer` ends with the
    norm before the MLP, in the exchange's buffer, and part `mlp` begins with it.
    """

    model: ModelShape
    context: int
    weights: DeviceWeights
    cache: DeviceCache
    scratch: Scratch
    staging: Staging
    graphs: SegmentGraphs
    exchange: CudaExchange | None = None
    chunk_rows: int = 0
    incoming: Tensor | None = None  # rows that the next segment begins with, if it does not embed

    def decode(self, run: Run, num_rows: int, reach: int, *, wants_logits: bool) -> None:
        """Rows of `incoming`, or of the staged tokens, to `hidden` or `logits`."""
        if self.exchange and self.exchange.is_pending:
            rows = self.rows.at(run.layers[0], num_rows)
            gain = self._gain(run, run.layers[0])
            self.exchange.add(rows.hidden, rows.gained, rows.squares, gain)
        elif run.part != "mlp":
            self._enter(run, num_rows, self.staging.positions[:num_rows], None)
        for index in range(*run.layers):
            self._decode_layer(run, index, num_rows, reach)
        if run.head and wants_logits:
            self._head(num_rows)

    def prompt(self, run: Run, num_rows: int, *, wants_logits: bool) -> None:
        """As decode, for the rows of a chunk; logits of the last one."""
        filled = self.filled(num_rows)
        source = None if run.embed or self._has_sum else self.incoming
        key = ("prompt", run, filled, wants_logits, None if source is None else source.data_ptr(),
               self.exchange.key if self.exchange else ())  # fmt: skip

        def launch() -> None:
            self._prompt(run, filled, wants_logits=wants_logits)

        self.graphs.run(key, launch, num_layers=run.layers[1] - run.layers[0])

    def _prompt(self, run: Run, filled: int, *, wants_logits: bool) -> None:
        if not self._has_sum and run.part != "mlp":
            self._enter(run, filled, None, self.staging.chunk)
        self._prompts.launch(run, filled)
        if run.head and wants_logits:
            self._prompt_head(run)

    def _prompt_head(self, run: Run) -> None:
        rows, s = self.rows.at(run.layers[0], 1), self.scratch
        gain = self.weights.buffers["final_norm"]
        enter(s["hidden"], None, None, s["last"], rows.gained, rows.squares, gain, s.inv_freq,
              s.factors, s["angles"], self.staging.chunk, is_last=True)  # fmt: skip
        self._head(1)

    def _enter(
        self, run: Run, num_rows: int, positions: Tensor | None, chunk: Tensor | None
    ) -> None:
        s, rows = self.scratch, self.rows.at(run.layers[0], num_rows)
        source, tokens = self.incoming, None
        if run.embed:
            source, tokens = self.weights.buffers["embedding"], self.staging.token_ids
        assert source is not None
        enter(source, tokens, positions, rows.hidden, rows.gained, rows.squares,
              self._gain(run, run.layers[0]), s.inv_freq, s.factors, s["angles"],
              chunk)  # fmt: skip

    def _decode_layer(self, run: Run, index: int, num_rows: int, reach: int) -> None:
        if run.part != "mlp":
            self.launch_role("qkv", run, index, num_rows)
            self._attend(index, num_rows, reach)
            self.launch_role("o", run, index, num_rows)
        if run.part != "mixer":
            self.launch_role("gate_up", run, index, num_rows)
            self.launch_role("down", run, index, num_rows)

    def launch_role(self, role: str, run: Run, index: int, num_rows: int) -> None:
        """The kernel of decode rows that reads one matrix of a layer, or the head's."""
        rows, w, eps = self.rows.at(index, num_rows), self._by_layer[index], self._eps
        hidden, width, card = self.model.hidden_size, self._itemsize, self._card
        match role:
            case "qkv":
                linear(rows.gained, rows.squares, w["qkv"], w.get("qkv_bias"), rows.qkv, eps=eps,
                       tiling=tiling(role, width, num_rows, hidden, card))  # fmt: skip
            case "o":
                size = rows.attended.shape[1]
                how = tiling(role, width, num_rows, size, card)
                self._join(self._normed(run, rows), rows.attended, w["output"],
                           w.get("output_bias"), w["mlp_norm"], how,
                           tile_bounds(size, 1, how.pieces), 1)  # fmt: skip
            case "gate_up":
                rows = self._normed(run, rows)
                gate_up(rows.gained, rows.squares, w["gate_up"], rows.activated, eps=eps,
                        tiling=tiling(role, width, num_rows, hidden, card))  # fmt: skip
            case "down":
                bounds, group = tiles_of(self.model.layers[index])
                how = tiling(role, width, num_rows, bounds[1], card)
                if self.exchange:
                    self.exchange.decode(
                        rows.activated, w["down"], how, bounds, group,
                        halves=self.scratch["partials"], counters=self.scratch["counters"],
                    )  # fmt: skip
                    return
                self._join(rows, rows.activated, w["down"], None, self._gain(run, index + 1), how,
                           bounds, group)  # fmt: skip
            case _:
                self._head(num_rows)

    def _attend(self, index: int, num_rows: int, reach: int) -> None:
        rows, s, cache = self.rows.at(index, num_rows), self.scratch, self.cache.layers[index]
        attention(
            rows.qkv, rows.angles, self.staging.positions[:num_rows], self.staging.slots,
            cache.pages, cache.keys, cache.values, rows.attended, s["sums"], s["peaks"],
            page_tokens=self.cache.page_tokens, capacity=cache.capacity,
            window=cache.window, rotary_dim=self.rows.rotary(index),
            context=self.context, reach=reach,
        )  # fmt: skip

    def _join(
        self, rows: Rows, x: Tensor, w: Tensor, bias: Tensor | None, gain: Tensor, how: Tiling,
        bounds: tuple[int, ...], group: int,
    ) -> None:  # fmt: skip
        join(x, w, bias, rows.hidden, rows.gained, rows.squares, gain, tiling=how,
             partials=self.scratch["partials"], counters=self.scratch["counters"], bounds=bounds,
             group=group)  # fmt: skip

    def _normed(self, run: Run, rows: Rows) -> Rows:
        """The rows, with the norm before the MLP where it lies in this segment."""
        if self.exchange is None or run.part == "whole":
            return rows
        place = self.exchange.normed if run.part == "mixer" else self.incoming
        assert place is not None
        gained, squares = self.exchange.cut_normed(place, len(rows.hidden))
        return replace(rows, gained=gained, squares=squares)

    def _head(self, num_rows: int) -> None:
        buffers, s = self.weights.buffers, self.scratch
        head = buffers["head"] if "head" in buffers else buffers["embedding"]
        linear(s["gained"][:num_rows], s["squares"][:num_rows], head, None,
               s["logits"][:num_rows], eps=self._eps,
               tiling=tiling("head", self._itemsize, num_rows, self.model.hidden_size,
                             self._card))  # fmt: skip

    def filled(self, num_rows: int) -> int:
        """Rows of a chunk that are computed for so many."""
        filled = min(filled_rows(num_rows, self._itemsize), self.chunk_rows)
        assert num_rows <= filled, f"a chunk of {num_rows} rows, room for {self.chunk_rows}"
        return filled

    @cached_property
    def rows(self) -> LayerRows:
        return LayerRows(self.model, self.scratch, self.exchange.share if self.exchange else None)

    @cached_property
    def _prompts(self) -> Prompts:
        return Prompts(self.model.layers, self._eps, self._by_layer, self.cache, self.scratch,
                       self.rows, self.staging.chunk, self.exchange)  # fmt: skip

    @property
    def _has_sum(self) -> bool:
        """Whether the next segment begins with a group's partial rows."""
        return self.exchange is not None and self.exchange.is_pending

    @property
    def _eps(self) -> float:
        assert self.model.geometry is not None
        return self.model.geometry.norm_eps

    @property
    def _itemsize(self) -> int:
        return self.scratch["hidden"].element_size()

    @cached_property
    def _card(self) -> Card:
        return card_of(self.scratch["hidden"].device)

    @cached_property
    def _by_layer(self) -> dict[int, dict[str, Tensor]]:
        found: dict[int, dict[str, Tensor]] = {}
        for name, tensor in self.weights.buffers.items():
            index, _, part = name.partition(".")
            if part:
                found.setdefault(int(index), {})[part] = tensor
        return found

    def _gain(self, run: Run, index: int) -> Tensor:
        """Of the norm that comes next in the segment; any, where none does."""
        if index < run.layers[1]:
            return self.weights.buffers[f"{index}.input_norm"]
        if run.head:
            return self.weights.buffers["final_norm"]
        return next(t for name, t in self.weights.buffers.items() if name.endswith("_norm"))
