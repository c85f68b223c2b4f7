"""CPU ranks driven step by step, without an engine: any cut of a model into stages.

ranks = CpuRanks(shape, tensors, cuts=(0, 3, 7), context=128)
logits = ranks.prompt(0, token_ids, chunk=16)
logits = ranks.decode({0: 17})
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from plancc_checkpoints import TinyLlama, config_of, tensor_values
from safetensors import safe_open

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.manifest_of_folder import manifest_of_folder
from plancc.executor.backend.api import RankModel
from plancc.executor.backend.cpu import CpuBackend, CpuRank
from plancc.executor.kv_pages import KvPages
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.kernel_spec import KERNELS
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import PAGE_TOKENS

Tensors = Mapping[str, torch.Tensor]


def tiny_model(spec: TinyLlama) -> tuple[ModelShape, dict[str, torch.Tensor]]:
    """The shape and the tensors of a tiny checkpoint, without a folder."""
    shape = read_architecture(config_of(spec), where="config.json", name="tiny", tied=None).shape
    dtype = getattr(torch, spec.dtype)
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
        for name, values in tensor_values(spec).items()
    }
    return shape, tensors


def folder_model(folder: Path) -> tuple[ModelShape, dict[str, torch.Tensor]]:
    """The shape and the tensors of a model folder."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}
    return manifest_of_folder(folder).manifest.shape(), tensors


def runtime_of(
    shape: ModelShape, *, context: int, slots: int = 1, chunk: int = 512, kv_dtype: str = ""
) -> Runtime:
    """The settings of a run; workers and hosts do not matter to a rank."""
    return Runtime.model_validate(
        {
            "context": context,
            "slots": slots,
            "page_tokens": PAGE_TOKENS,
            "pages": slots * -(-context // PAGE_TOKENS),
            "prefill_chunk": chunk,
            "dtype": shape.dtype,
            "kv_dtype": kv_dtype or shape.dtype,
            "kernels": KERNELS,
            "hosts": (),
            "workers": (),
        }
    )


class CpuRanks:
    """One rank a stage: `cuts` are the first layers of the stages, then the layer count."""

    def __init__(
        self,
        shape: ModelShape,
        tensors: Tensors,
        *,
        context: int,
        cuts: Sequence[int] = (),
        threads: int = 1,
        slots: int = 1,
        chunk: int = 512,
        kv_dtype: str = "",
        head_first: bool = False,
    ) -> None:
        cuts = tuple(cuts) or (0, len(shape.layers))
        self.shape = shape
        self.runtime = runtime_of(shape, context=context, slots=slots, chunk=chunk,
                                  kv_dtype=kv_dtype)  # fmt: skip
        self.spans = tuple(pairwise(cuts))
        self.head = 0 if head_first else len(self.spans) - 1
        self.ranks = [self._open(index, threads) for index in range(len(self.spans))]
        for rank in self.ranks:
            for piece in rank.pieces():
                rank.parameter(piece).copy_(tensors[piece.spec.name])
        self.pages = KvPages(context=context, page_tokens=PAGE_TOKENS, pages=self.runtime.pages,
                             slots=slots)  # fmt: skip
        self.lengths = [0] * slots

    def _open(self, index: int, threads: int) -> CpuRank:
        blocks = ("embed",) if index == 0 else ()
        blocks += ("head",) if index == self.head else ()
        mlp = self.shape.layers[0].mlp
        assert isinstance(mlp, DenseMlp)
        return CpuBackend().open(
            model=self.shape,
            runtime=self.runtime,
            layers=self.spans[index],
            blocks=blocks,
            tiles=(0, mlp.num_tiles),
            threads=threads,
        )

    def run(self, step: Step) -> torch.Tensor:
        """Logits of a step, through all stages; hidden rows are copied as a link would."""
        hidden: torch.Tensor | None = None
        for index, (rank, span) in enumerate(zip(self.ranks, self.spans, strict=True)):
            has_head = index == self.head and index == len(self.spans) - 1
            run = Run(segment=0, layers=span, embed=index == 0, head=has_head)
            hidden = _read(rank, run, step, hidden)
        if self.head == 0 and len(self.spans) > 1:
            last = Run(segment=1, layers=(self.spans[0][1],) * 2, head=True)
            hidden = _read(self.ranks[0], last, step, hidden)
        assert hidden is not None
        return hidden

    def prompt(self, slot: int, token_ids: Sequence[int], *, chunk: int = 512) -> torch.Tensor:
        """Logits [vocab_size] of the last row of a new prompt, fed in chunks."""
        self.release(slot)
        return self.extend(slot, token_ids, chunk=chunk)

    def extend(self, slot: int, token_ids: Sequence[int], *, chunk: int = 512) -> torch.Tensor:
        """The same for more prompt rows of the slot's sequence."""
        logits = torch.empty(0)
        for at in range(0, len(token_ids), chunk):
            part = tuple(token_ids[at : at + chunk])
            is_last = at + chunk >= len(token_ids)
            pages = self.pages.grow(slot, self.lengths[slot] + len(part))
            logits = self.run(Step("prompt", (slot,), (self.lengths[slot],), part, pages, is_last))
            assert len(logits) == int(is_last)
            self.lengths[slot] += len(part)
        return logits[0]

    def decode(self, tokens: Mapping[int, int]) -> torch.Tensor:
        """Logits [rows, vocab_size] after one more token for each slot given, in that order."""
        slots = tuple(tokens)
        pages = tuple(page for s in slots for page in self.pages.grow(s, self.lengths[s] + 1))
        positions = tuple(self.lengths[slot] for slot in slots)
        logits = self.run(Step("decode", slots, positions, tuple(tokens.values()), pages))
        for slot in slots:
            self.lengths[slot] += 1
        return logits

    def release(self, slot: int) -> None:
        """Give the slot back and admit its next tenant."""
        self.pages.release(slot)
        self.lengths[slot] = 0
        for rank in self.ranks:
            rank.admit(slot)

    def greedy(self, token_ids: Sequence[int], count: int, *, chunk: int = 512) -> list[int]:
        """`count` greedy tokens after a prompt, in slot 0."""
        logits = self.prompt(0, token_ids, chunk=chunk)
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            tokens.append(int(self.decode({0: tokens[-1]})[0].argmax()))
        return tokens

    def kv_digests(self, slot: int = 0) -> list[str]:
        """Of every layer, in order."""
        return [
            rank.kv_digest(layer, slot, self.lengths[slot])
            for rank, span in zip(self.ranks, self.spans, strict=True)
            for layer in range(*span)
        ]


def _read(rank: RankModel, run: Run, step: Step, hidden: torch.Tensor | None) -> torch.Tensor:
    """What the rank returns, on the host, its own."""
    rank.begin(step)
    return rank.read(rank.run(run, step, hidden)).clone()
