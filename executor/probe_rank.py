"""What one device does alone, measured with the backend that runs plans on it.

A rank of a made-up model is opened and stepped as in a run, so what a layer costs beside its
weights (norms, rotation, one key of attention, rounding) is in the numbers.
"""

import statistics
import time
from math import ceil

import torch

from plancc.executor.backend.api import RankModel
from plancc.executor.backends import backend_of
from plancc.executor.probe_model import runtime_of, square_model
from plancc.executor.step import Step
from plancc.ir.buffers import PROMPT_BLOCK_ROWS
from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.instruction import Run
from plancc.ir.kernel_spec import (
    layer_flops_per_row,
    mixer_launches,
    mixer_reads,
    mlp_launches,
    mlp_reads,
)
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import PAGE_TOKENS

_TINY_BYTES, _TINY_TOTAL = 8 * 2**10, 2**20
_MATMUL_BYTES, _MATMUL_TOTAL = 2 * 2**20, 16 * 2**20
_WEIGHT = 0.01
_LEAST_TIMES = 3

Points = list[tuple[float, float]]


class RankProbe:
    """One device of a kind, with so many threads.

    `seconds` is what one number may take; a decode step walks over `rotated_bytes` of weights.
    """

    def __init__(
        self, kind: str, threads: int, dtype: DType, seconds: float, rotated_bytes: int
    ) -> None:
        self._backend = backend_of(kind)
        self._threads, self._dtype, self._seconds = threads, dtype, seconds
        self._rotated_bytes = rotated_bytes
        torch.set_num_threads(1)  # only fills weights here; its waiting threads would disturb

    def warm_up(self) -> None:
        """Compile what the first step of either phase compiles."""
        model = square_model(_TINY_BYTES, self._dtype, _TINY_BYTES)
        for rows in (1, PROMPT_BLOCK_ROWS):
            self._step_times(model, rows, seconds=0.0)

    def launch_us(self) -> float:
        """A layer whose weights lie in a near cache, divided by its launches.

        The shortest of all: it is taken off longer times, and whatever disturbs only adds.
        """
        model = square_model(_TINY_BYTES, self._dtype, _TINY_TOTAL)
        return min(self._step_times(model, 1, self._seconds)) / _launches(model)

    def read_points(self, sizes: list[int], launch_us: float) -> Points:
        """(bytes, us) of one kernel that streams so many bytes, its launch taken off.

        A step reads each weight once and all together exceed the caches, so none is found there.
        """
        return [self._read_point(size, launch_us) for size in sizes]

    def matmul_points(self, rows: list[int], launch_us: float) -> Points:
        """(rows, TFLOP/s) of the matrix products of a prompt step, launches taken off."""
        model = square_model(_MATMUL_BYTES, self._dtype, _MATMUL_TOTAL)
        return [(count, self._tflops(model, count, launch_us)) for count in rows]

    def _read_point(self, size: int, launch_us: float) -> tuple[float, float]:
        model = square_model(size, self._dtype, self._rotated_bytes)
        read_us = self._compute_us(model, 1, launch_us)
        return size, size * read_us / _step_bytes(model)

    def _tflops(self, model: ModelShape, rows: int, launch_us: float) -> float:
        return _step_flops(model, rows) / self._compute_us(model, rows, launch_us) / 1e6

    def _compute_us(self, model: ModelShape, rows: int, launch_us: float) -> float:
        """Median time of a step over all layers, its launches taken off.

        At least half of it stays: beyond that the launches were measured on a busier machine.
        """
        step_us = statistics.median(self._step_times(model, rows, self._seconds))
        return max(step_us - _launches(model) * launch_us, step_us / 2)

    def _step_times(self, model: ModelShape, rows: int, seconds: float) -> list[float]:
        """us of each step in so many seconds: decode steps, or prompts of `rows` rows."""
        rank, end = self._open(model, rows), len(model.layers)
        run = Run(segment=0, layers=(0, end))
        hidden = torch.full((rows, model.hidden_size), _WEIGHT, dtype=getattr(torch, model.dtype))
        step = _step(rows)
        rank.run(run, step, hidden)
        times: list[float] = []
        deadline = time.monotonic() + seconds
        while len(times) < _LEAST_TIMES or time.monotonic() < deadline:
            begin = time.monotonic_ns()
            rank.run(run, step, hidden)
            times.append((time.monotonic_ns() - begin) / 1e3)
        return times

    def _open(self, model: ModelShape, rows: int) -> RankModel:
        rank = self._backend.open(
            model=model,
            runtime=runtime_of(model, rows),
            layers=(0, len(model.layers)),
            blocks=(),
            tiles=(0, _num_tiles(model)),
            threads=self._threads,
        )
        for piece in rank.pieces():
            rank.parameter(piece).fill_(_WEIGHT)  # pages never written would all be one page
        rank.admit(0)
        return rank


def _step(rows: int) -> Step:
    pages = tuple((0, page, page) for page in range(ceil(rows / PAGE_TOKENS)))
    if rows == 1:
        return Step("decode", (0,), (0,), (0,), pages, wants_logits=False)
    return Step("prompt", (0,), tuple(range(rows)), (0,) * rows, pages, wants_logits=False)


def _num_tiles(model: ModelShape) -> int:
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    return mlp.num_tiles


def _launches(model: ModelShape) -> int:
    return sum(mixer_launches(layer) + mlp_launches(layer) for layer in model.layers)


def _step_bytes(model: ModelShape) -> float:
    """Weight bytes of all kernels of a decode step, as the prediction counts them."""
    layers = model.layers
    kernels = [*mixer_reads(layers[0]), *mlp_reads(layers[0], 1)]
    return sum(kernels) * len(layers)


def _step_flops(model: ModelShape, rows: int) -> float:
    """Products and attention of a prompt step from position 0, as the prediction counts them."""
    layer = model.layers[0]
    width = (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)
    attention = 4 * rows * width * (rows + 1) / 2
    products = layer_flops_per_row(layer, ITEMSIZE[model.dtype]) * rows
    return (products + attention) * len(model.layers)
