"""A card whose kernels take what a law says of their matrices: for what the probe makes of them.

The law is of (rows, columns) of a matrix of two-byte numbers, in us, its launch included. Every
other kernel takes `launch_us`: attention to one key, the copy and the kernel that rows enter by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from plancc_fake_device import FakeDevice, FakeRank

from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.tensors import rank_pieces

LAUNCH_US = 2.388
MULTIPROCESSORS, PROGRAM_ROWS = 132, 64
Law = Callable[[int, int], float]


def h200_us(rows: int, columns: int) -> float:
    """Within 3 % of what the kernels of Llama-3.1-8B took, one by one, on one H200."""
    return max(LAUNCH_US, 3.7 * min(1.0, 0.65 + rows * columns / 6e6) + 2 * rows * columns / 4.5e6)


def waves_us(rows: int, columns: int) -> float:
    """Programs of 64 rows run in whole waves over the multiprocessors; few leave some idle."""
    waves = rows / PROGRAM_ROWS / MULTIPROCESSORS
    idle = ceil(waves) / waves if waves >= 1 else waves**-0.3
    return LAUNCH_US + 0.9 + 2 * rows * columns / 4.6e6 * (1 + 0.2 * (idle - 1))


@dataclass
class FakeCard(FakeDevice):
    """`opened` has models; `bytes_held` is of the last rank's."""

    law: Law = h200_us

    def open(self, *, model: Any, layers: Any, blocks: Any, **rest: Any) -> "FakeCardRank":
        self.opened.append(model)
        return FakeCardRank(self, rank_pieces(model, layers, blocks=blocks), model)


class FakeCardRank(FakeRank):
    def __init__(self, device: FakeCard, pieces: Any, model: ModelShape) -> None:
        super().__init__(device, pieces, len(model.layers))
        self._card, self._model = device, model

    def run(self, run: Any, step: Any, hidden: Any) -> Any:
        clock, model = self._card.clock, self._model
        clock.host_us += self._card.launch_us
        clock.work(2 * LAUNCH_US)
        clock.work(len(model.layers) * layer_us(model, model.layers[0], self._card.law))
        if run.head:
            assert model.vocab_size is not None
            clock.work(self._card.law(model.vocab_size, model.hidden_size))
        return self._one


def layer_us(model: ModelShape, layer: Layer, law: Law) -> float:
    return LAUNCH_US + sum(law(*matrix) for matrix in matrices(model, layer).values())


def step_us(model: ModelShape, law: Law) -> float:
    """A whole decode step: embedding, layers, head, sampling."""
    head = law(model.vocab_size or 0, model.hidden_size)
    return 2 * LAUNCH_US + head + sum(layer_us(model, layer, law) for layer in model.layers)


def matrices(model: ModelShape, layer: Layer) -> dict[str, tuple[int, int]]:
    """(rows, columns) of what a layer's kernels read."""
    mixer, mlp, hidden = layer.mixer, layer.mlp, model.hidden_size
    assert isinstance(mlp, DenseMlp)
    queries, values = (mixer.num_heads or 0) * (mixer.head_dim or 0), mixer.kv_width() or 0
    inner = mlp.intermediate_size or 0
    return {"qkv": (queries + values, hidden), "o": (hidden, queries),
            "gate_up": (2 * inner, hidden), "down": (hidden, inner)}  # fmt: skip
