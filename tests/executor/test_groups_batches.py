"""Rows of several requests in one decode step of a group: each with the bits it has alone."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from plancc_checkpoints import TinyLlama
from plancc_cpu_ranks import CpuRanks, Tensors, tiny_model

from plancc.executor.backend.cpu import CpuBackend, CpuRank
from plancc.executor.group import Group
from plancc.executor.step import Step
from plancc.ir.groups import Mixer
from plancc.ir.instruction import Run
from plancc.ir.manifest import ModelShape
from plancc.ir.tensors import TensorPiece

SPEC = TinyLlama(num_layers=3, num_heads=5, num_kv_heads=1, head_dim=16)
PROMPTS = ([7, 3, 250, 12, 99], list(range(1, 90)), [5] * 17)


class GroupRanks(CpuRanks):
    """All layers in one stage of several ranks, stepped by hand: run, then take what all have."""

    def __init__(
        self, shape: ModelShape, tensors: Tensors, tiles: Sequence[int], mixer: Mixer, threads: int
    ) -> None:
        super().__init__(shape, tensors, context=128, slots=3, chunk=128)
        borders = (0, *tiles, 16)
        shares = tuple(pairwise(borders))
        self.groups = [Group(mixer, shares, number) for number in range(len(shares))]
        self.ranks = [self._open_member(group, threads) for group in self.groups]
        for rank in self.ranks:
            for piece in rank.pieces():
                rank.parameter(piece).copy_(_part(tensors[piece.spec.name], piece))

    def _open_member(self, group: Group, threads: int) -> CpuRank:
        return CpuBackend().open(
            model=self.shape,
            runtime=self.runtime,
            layers=(0, len(self.shape.layers)),
            blocks=("embed", "head") if group.number == 0 else (),
            tiles=group.shares[group.number],
            threads=threads,
            group=group,
        )

    def run(self, step: Step) -> torch.Tensor:
        lead, *others = self.ranks
        is_owned = self.groups[0].mixer == "owned"
        holders = [lead] if is_owned else self.ranks
        rows = lead.run(Run(segment=0, layers=(0, 0), embed=True), step, None).clone()
        hidden = [rows.clone() for _ in holders]
        for layer in range(len(self.shape.layers)):
            span, parts = (layer, layer + 1), []
            if is_owned:
                mixer = Run(segment=0, layers=span, part="mixer")
                normed = lead.run(mixer, step, hidden[0]).clone()
                mlp = Run(segment=0, layers=span, part="mlp")
                parts = [rank.run(mlp, step, normed) for rank in self.ranks]
            else:
                run = Run(segment=0, layers=span)
                parts = [rank.run(run, step, row)
                         for rank, row in zip(self.ranks, hidden, strict=True)]  # fmt: skip
            hidden = [rank.take(layer, parts) for rank in holders]
        for rank, row in zip(others, hidden[1:], strict=False):
            rank.run(Run(segment=0, layers=(0, 0)), step, row)
        return lead.run(Run(segment=0, layers=(0, 0), head=True), step, hidden[0]).clone()


def _part(tensor: torch.Tensor, piece: TensorPiece) -> torch.Tensor:
    if piece.span is None:
        return tensor
    part = slice(*piece.span)
    return tensor[part] if piece.spec.cut == "rows" else tensor[:, part]


@pytest.mark.parametrize("mixer", ["replicated", "owned"])
@pytest.mark.parametrize(("tiles", "threads"), [((8,), 1), ((3, 10), 1), ((1, 4, 15), 2)])
def test_requests_beside_leave_no_trace_in_a_group(
    tiles: tuple[int, ...], threads: int, mixer: Mixer
) -> None:
    shape, tensors = tiny_model(SPEC)
    alone = CpuRanks(shape, tensors, context=128, slots=3, chunk=128)
    group = GroupRanks(shape, tensors, tiles, mixer, threads)
    for slot, prompt in enumerate(PROMPTS):
        expected = alone.prompt(slot, prompt)
        assert torch.equal(group.prompt(slot, prompt, chunk=70 - slot), expected)
    for step in range(3):
        tokens = {slot: 30 * slot + step for slot in (2, 0, 1)}
        together = group.decode(tokens)
        for row, (slot, token) in enumerate(tokens.items()):
            assert torch.equal(together[row], alone.decode({slot: token})[0])
    for slot in range(3):
        lead = [group.ranks[0].kv_digest(layer, slot, alone.lengths[slot]) for layer in range(3)]
        assert lead == alone.kv_digests(slot)
