"""TP groups of the GPU kernels and of CUDA ranks, in Triton's interpreter and on a card.

A case computes a down projection on one device and on a group of shares; what the group's ranks end
with must have the same bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from plancc_cpu_ranks import CpuRanks, runtime_of
from plancc_gpu_cases import Maker, waiting_room
from plancc_gpu_plans import cards_here

from plancc.executor.backend.cuda import CudaBackend
from plancc.executor.group import Group, root_merges
from plancc.executor.kv_pages import KvPages
from plancc.executor.step import Step
from plancc.ir.instruction import Run
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import PAGE_TOKENS
from plancc.ir.tensors import TensorPiece
from plancc.ir.tiles import Span, subtree_roots, tile_bounds
from plancc.kernels.gpu import reference
from plancc.kernels.gpu.join import join
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.partials import partials
from plancc.kernels.gpu.prompt_down import prompt_down, prompt_partials
from plancc.kernels.gpu.roots import add_roots
from plancc.kernels.gpu.tilings import Tiling

Tensor = torch.Tensor


@dataclass(frozen=True)
class Cut:
    """A down projection [n, k] whose tiles are cut at `borders` into shares."""

    n: int
    k: int
    tiles: int
    borders: tuple[int, ...]
    group: int = 1

    @property
    def bounds(self) -> tuple[int, ...]:
        return tile_bounds(self.k, self.group, self.tiles)

    @property
    def shares(self) -> tuple[Span, ...]:
        return tuple(pairwise((0, *self.borders, self.tiles)))

    @property
    def roots(self) -> list[tuple[Span, ...]]:
        return [subtree_roots(self.tiles, share) for share in self.shares]

    @property
    def merges(self) -> list[int]:
        return root_merges(tuple(span for roots in self.roots for span in roots))

    def columns(self, share: Span) -> slice:
        return slice(self.bounds[share[0]], self.bounds[share[1]])


@dataclass(frozen=True)
class Found:
    """Outputs of one device and of a group by name, every rank's partial rows, references."""

    one: Mapping[str, Tensor]
    group: Mapping[str, Tensor]
    parts: Sequence[Tensor]
    residual: Tensor
    ref_parts: Sequence[Tensor]

    def unequal(self) -> list[str]:
        """Outputs whose bits differ."""
        return [name for name in self.one if not torch.equal(self.one[name], self.group[name])]


def run_decode(make: Maker, num_rows: int, cut: Cut, tiling: Tiling) -> Found:
    """join on one device; partials on every rank and add_roots on one of a group."""
    x, w, before, gain = _inputs(make, num_rows, cut)
    one, group = (_outputs(make, before) for _ in range(2))
    counters = make.ints(-(-cut.n // CHUNK))
    room = {"counters": counters, "bounds": cut.bounds, "group": cut.group, "tiling": tiling}
    join(x, w, None, *one.values(), gain, **room,
         partials=make.poisoned(2, num_rows, cut.n, dtype=torch.float32))  # fmt: skip
    parts = _empty_parts(make, num_rows, cut)
    for share, roots, out in zip(cut.shares, cut.roots, parts, strict=True):
        at = cut.columns(share)
        partials(x[:, at].contiguous(), w[:, at].contiguous(), out, roots=roots, **room,
                 halves=make.poisoned(2, num_rows, cut.n, dtype=torch.float32))  # fmt: skip
    assert not counters.any()
    add_roots(parts, cut.merges, *group.values(), gain)
    return Found(one, group, parts, *_references(x, w, before, cut))


def run_prompt(make: Maker, num_rows: int, cut: Cut) -> Found:
    """The same for prompt rows, which have no norm of the next layer yet."""
    x, w, before, _ = _inputs(make, num_rows, cut)
    one, group = before.clone(), before.clone()
    waiting = waiting_room(make, num_rows, cut.n, cut.tiles)
    prompt_down(x, w, one, bounds=cut.bounds, group=cut.group, waiting=waiting)
    parts = _empty_parts(make, num_rows, cut)
    for share, roots, out in zip(cut.shares, cut.roots, parts, strict=True):
        at = cut.columns(share)
        prompt_partials(x[:, at].contiguous(), w[:, at].contiguous(), out, roots=roots,
                        bounds=cut.bounds, group=cut.group, waiting=waiting)  # fmt: skip
    add_roots(parts, cut.merges, group)
    references = _references(x, w, before, cut)
    return Found({"residual": one}, {"residual": group}, parts, *references)


def _inputs(make: Maker, num_rows: int, cut: Cut) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (make.normal(num_rows, cut.k), make.weights(cut.n, cut.k), make.normal(num_rows, cut.n),
            make.normal(cut.n))  # fmt: skip


def _outputs(make: Maker, before: Tensor) -> dict[str, Tensor]:
    num_rows, n = before.shape
    squares = make.poisoned(num_rows, -(-n // CHUNK), dtype=torch.float32)
    return {"residual": before.clone(), "gained": make.poisoned(num_rows, n), "squares": squares}


def _empty_parts(make: Maker, num_rows: int, cut: Cut) -> list[Tensor]:
    return [make.poisoned(num_rows, len(roots), cut.n, dtype=torch.float32) for roots in cut.roots]


def _references(x: Tensor, w: Tensor, before: Tensor, cut: Cut) -> tuple[Tensor, list[Tensor]]:
    """float64: the residual, and the partial rows of each rank."""
    wide, down, bounds = x.double(), w.double(), cut.bounds
    residual = before.double() + reference.tile_tree(wide, down, bounds)
    parts = []
    for roots in cut.roots:
        sums = [wide[:, bounds[a] : bounds[b]] @ down[:, bounds[a] : bounds[b]].T
                for a, b in roots]  # fmt: skip
        parts.append(torch.stack(sums, 1))
    return residual, parts


class GpuGroup(CpuRanks):
    """One stage of all layers as a group, driven by hand: shares at `borders`.

    Ranks read each other's rows where they lie. `hidden`: the last rows of every rank but the
    first, where they have any.
    """

    def __init__(
        self, shape: ModelShape, tensors: Mapping[str, Tensor], borders: Sequence[int], *,
        mixer: Literal["replicated", "owned"] = "replicated", context: int, slots: int = 1,
        chunk: int = 512, device: str = "cpu", graphs: bool = True,
    ) -> None:  # fmt: skip
        self.shape, self.runtime = (
            shape,
            runtime_of(shape, context=context, slots=slots, chunk=chunk),
        )
        mlp = shape.layers[0].mlp
        assert isinstance(mlp, DenseMlp)
        shares = tuple(pairwise((0, *borders, mlp.num_tiles)))
        backend = CudaBackend(device, uses_graphs=graphs)
        self.ranks = [
            backend.open(
                model=shape, runtime=self.runtime, layers=(0, len(shape.layers)),
                blocks=("embed", "head") if number == 0 else (), tiles=share, threads=1,
                group=Group(mixer, shares, number),
                uuid=cards_here()[0] if device == "cuda" else None,
            )
            for number, share in enumerate(shares)
        ]  # fmt: skip
        for rank in self.ranks:
            for piece in rank.pieces():
                rank.parameter(piece).copy_(part_of(tensors[piece.spec.name], piece))
        self.pages = KvPages(context=context, page_tokens=PAGE_TOKENS, pages=self.runtime.pages,
                             slots=slots)  # fmt: skip
        self.lengths, self.is_owned = [0] * slots, mixer == "owned"
        self.hidden: list[Tensor] = []

    def run(self, step: Step) -> Tensor:
        first = self.ranks[0]
        for rank in self.ranks:
            rank.begin(step)
        embedded = first.run(Run(segment=0, layers=(0, 0), embed=True), step, None)
        holders = [first] if self.is_owned else self.ranks
        rows = [embedded, *(first.read(embedded).clone() for _ in holders[1:])]
        end = len(self.shape.layers)
        for layer in range(end):
            parts = self._layer(layer, step, rows)
            rows = [rank.take(layer, parts) for rank in holders]
        last = Run(segment=end + 1, layers=(end, end))
        self.hidden = [rank.run(last, step, mine)
                       for rank, mine in zip(holders[1:], rows[1:], strict=True)]  # fmt: skip
        has_head = last.model_copy(update={"head": True})
        logits = first.read(first.run(has_head, step, rows[0])).clone()
        self._wait()
        return logits

    def _layer(self, layer: int, step: Step, rows: Sequence[Tensor]) -> list[Tensor]:
        """Every rank's partial rows."""
        run = Run(segment=layer + 1, layers=(layer, layer + 1))
        if self.is_owned:
            mixer = run.model_copy(update={"part": "mixer"})
            rows = [self.ranks[0].run(mixer, step, rows[0])] * len(self.ranks)
            run = run.model_copy(update={"part": "mlp"})
            self._wait()
        parts = [rank.run(run, step, mine) for rank, mine in zip(self.ranks, rows, strict=True)]
        self._wait()
        return parts

    def _wait(self) -> None:
        for rank in self.ranks:
            rank.wait()

    def kv_digests(self, slot: int = 0) -> list[str]:
        """Of every layer, where all ranks have the same."""
        holders = self.ranks[:1] if self.is_owned else self.ranks
        found = [
            [rank.kv_digest(layer, slot, self.lengths[slot]) for rank in holders]
            for layer in range(len(self.shape.layers))
        ]
        assert all(len(set(digests)) == 1 for digests in found)
        return [digests[0] for digests in found]


def part_of(tensor: Tensor, piece: TensorPiece) -> Tensor:
    """The rows or columns of a whole tensor that a piece is."""
    if piece.span is None:
        return tensor
    at = slice(*piece.span)
    return tensor[:, at] if piece.spec.cut == "columns" else tensor[at]
