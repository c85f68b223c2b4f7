"""What one device does alone, measured with the backend that runs plans on it.

A rank of a made-up model is opened and stepped as in a run, so what a layer costs beside its
weights (norms, rotation, one key of attention, rounding) is in the numbers.
"""

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import torch

from plancc.executor.backends import backend_of, host_of
from plancc.executor.probe_fit import Points, Reading, fit_points
from plancc.executor.probe_kinds import MIB, Scale
from plancc.executor.probe_model import (
    layer_kernels,
    runtime_of,
    square_model,
    usual_model,
    with_head,
)
from plancc.executor.probe_stepper import Stepper, begun, fill, first_step, prompt_step
from plancc.ir.buffers import PROMPT_BLOCK_ROWS
from plancc.ir.dtype import ITEMSIZE, DType
from plancc.ir.instruction import Run
from plancc.ir.kernel_spec import (
    layer_flops_per_row,
    mixer_launches,
    mlp_launches,
)
from plancc.ir.layers import DenseMlp
from plancc.ir.manifest import ModelShape

_TINY_BYTES = 8 * 2**10
_TINY_POINT = (_TINY_BYTES, 0.01)  # us: of so few bytes nothing is left beside the launch
_FIRST_STEPS = 2  # compile, and make a graph where a device has that
_LEAST_TIMES = 3
_LEAST_US = 0.1
_ENTER_LAUNCHES = 2
_MOST_STEPS = 1000  # that a device is given at once


class RankProbe:
    """One device of a kind, measured at a scale."""

    def __init__(self, kind: str, uuid: str | None, threads: int, dtype: DType, scale: Scale):
        self._backend, self._host = backend_of(kind), host_of(kind)
        self._uuid, self._threads, self._dtype, self._scale = uuid, threads, dtype, scale
        torch.set_num_threads(1)  # only fills weights here; its waiting threads would disturb

    def warm_up(self) -> int:
        """Compile what the first step of either phase compiles, and keep a rank that links can
        have: one that drives, as a run's steps are recorded with its driver.

        Returns the bytes that a device has less free then beside what a ledger counts, in whole
        MiB; 0 where no device tells what is free. Call before anything is opened on it.
        """
        before = self._host.free_bytes(self._uuid)
        model = with_head(square_model(_TINY_BYTES, self._dtype, _TINY_BYTES))
        steppers = [self._opened(model, rows) for rows in (1, PROMPT_BLOCK_ROWS)]
        for stepper in steppers:
            stepper.us()
            stepper.us()  # the second time is a replay, where steps are recorded
        self.rank = steppers[0].rank
        after = self._host.free_bytes(self._uuid)
        if before is None or after is None:
            return 0
        held = sum(sum(stepper.rank.allocated_bytes().values()) for stepper in steppers)
        return max(0, ceil((before - after - held) / MIB)) * MIB

    @property
    def device(self) -> torch.device:
        """Where its rows lie; after warm_up."""
        return self.rank.parameter(self.rank.pieces()[0]).device

    def launch_us(self) -> float:
        """A layer whose weights lie in a near cache, divided by its launches.

        The shortest of all: it is taken off longer times, and whatever disturbs only adds.
        """
        model = square_model(_TINY_BYTES, self._dtype, self._scale.tiny_total)
        return min(self._step_times(self._opened(model, 1))) / _launches(model)

    def read_points(self, launch_us: float) -> Points:
        """(bytes, us) of one kernel that streams so many bytes, its launch taken off.

        A step reads each weight once and all together exceed the caches, so none is found there.
        """
        sizes, widths = self._scale.read_sizes, self._scale.widths
        if not widths:
            return [self._read_point(size, launch_us) for size in sizes]
        readings = [one for width in widths for one in self._readings(width, launch_us)]
        return fit_points(readings, sizes, _TINY_POINT)

    def attention_tflops(self) -> float:
        """TFLOP/s of a prompt's attention: of what its last chunk takes longer than its first.

        At least a hundredth of that one: less is not told apart from nothing.
        """
        scale = self._scale
        rows, model = scale.attention_rows, usual_model(scale.prompt_width, self._dtype, 0)
        stepper = self._opened(model, rows, scale.attention_chunks)
        first_us = self._median_us(stepper)
        for chunk in range(1, scale.attention_chunks):
            stepper = begun(stepper, prompt_step(rows, chunk * rows))
            stepper.us()  # whose keys the next ones read
        last_us = self._median_us(stepper)
        more_us = max(last_us - first_us, last_us / 100)
        return _attention_flops(model, rows, stepper.step.positions[0]) / more_us / 1e6

    def matmul_points(self, launch_us: float, attention_tflops: float) -> Points:
        """(rows, TFLOP/s) of a prompt step's matrix products, launches and attention taken off."""
        scale = self._scale
        model = usual_model(scale.prompt_width, self._dtype, 0)
        return [(rows, self._tflops(model, rows, launch_us, attention_tflops))
                for rows in scale.matmul_rows]  # fmt: skip

    def _readings(self, width: int, launch_us: float) -> Iterator[Reading]:
        """Of the layers of a usual model, and of its head if it has one.

        Attention to one key is the launch that the prediction counts; rows are copied in and
        entered, which is two more. A head's time is what a step with it takes longer.
        """
        has_head = width in self._scale.heads
        model = usual_model(width, self._dtype, self._scale.rotated_bytes, has_head=has_head)
        stepper = self._opened(model, 1)
        layers = replace(stepper, run=stepper.run.model_copy(update={"head": False}))
        layers_us = self._median_us(layers)
        us = layers_us - (_launches(model) + _ENTER_LAUNCHES) * launch_us
        yield Reading(layer_kernels(model), max(us, layers_us / 2))
        for head in model.blocks:
            us = self._median_us(stepper) - layers_us - launch_us
            yield Reading(((head.weight_bytes, 1),), max(us, _LEAST_US))

    def _read_point(self, size: int, launch_us: float) -> tuple[float, float]:
        model = square_model(size, self._dtype, self._scale.rotated_bytes)
        read_us = self._compute_us(model, 1, launch_us)
        return size, size * read_us / _step_bytes(model)

    def _tflops(
        self, model: ModelShape, rows: int, launch_us: float, attention_tflops: float
    ) -> float:
        """Where attention is no slower than products, both are one rate, as in the prediction."""
        us, products = self._compute_us(model, rows, launch_us), _product_flops(model, rows)
        attention = _attention_flops(model, rows, (rows + 1) / 2)
        both = (products + attention) / us / 1e6
        if attention_tflops >= both:
            return both
        return products / max(us - attention / attention_tflops / 1e6, us / 2) / 1e6

    def _compute_us(self, model: ModelShape, rows: int, launch_us: float) -> float:
        """Median time of a step over all layers, its launches taken off.

        At least half of it stays: beyond that the launches were measured on a busier machine.
        """
        step_us = self._median_us(self._opened(model, rows))
        return max(step_us - _launches(model) * launch_us, step_us / 2)

    def _median_us(self, stepper: Stepper) -> float:
        return statistics.median(self._step_times(stepper))

    def _step_times(self, stepper: Stepper) -> list[float]:
        """us of steps in the scale's seconds: decode steps, or prompts of some rows."""
        for _ in range(_FIRST_STEPS):
            stepper.us()
        once_us = stepper.us()
        count = max(1, min(int(self._scale.batch_s * 1e6 / once_us), _MOST_STEPS))
        times: list[float] = []
        deadline = time.monotonic() + self._scale.seconds
        while len(times) < _LEAST_TIMES or time.monotonic() < deadline:
            times.append(stepper.us(count))
        return times

    def _opened(self, model: ModelShape, rows: int, chunks: int = 1) -> Stepper:
        """At its first position; with room for so many chunks of the rows."""
        gc.collect()  # the memory of the rank before may hang on a cycle
        rank = self._backend.open(
            model=model,
            runtime=runtime_of(model, rows, chunks),
            layers=(0, len(model.layers)),
            blocks=tuple(block.name for block in model.blocks),
            tiles=(0, _num_tiles(model)),
            threads=self._threads,
            uuid=self._uuid,
        )
        for piece in rank.pieces():
            fill(rank.parameter(piece))
        rank.admit(0)
        where = rank.parameter(rank.pieces()[0]).device
        dtype = getattr(torch, model.dtype)
        hidden = torch.randn(rows, model.hidden_size, device=where).to(dtype)
        hidden[0, 0].item()  # waits for all that was filled: ranks work apart from who fills them
        has_head = model.block("head") is not None
        run = Run(segment=0, layers=(0, len(model.layers)), head=has_head)
        step = first_step(rows, wants_logits=has_head)
        return begun(Stepper(rank, run, step, hidden), step)


def _num_tiles(model: ModelShape) -> int:
    mlp = model.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    return mlp.num_tiles


def _launches(model: ModelShape) -> int:
    return sum(mixer_launches(layer) + mlp_launches(layer) for layer in model.layers)


def _step_bytes(model: ModelShape) -> float:
    """Weight bytes of all kernels of a decode step, as the prediction counts them."""
    return sum(size * count for size, count in layer_kernels(model))


def _product_flops(model: ModelShape, rows: int) -> float:
    """Of a prompt step, as the prediction counts them."""
    each = layer_flops_per_row(model.layers[0], ITEMSIZE[model.dtype])
    return each * rows * len(model.layers)


def _attention_flops(model: ModelShape, rows: int, keys: float) -> float:
    """Of rows that see so many keys in the mean."""
    mixer = model.layers[0].mixer
    width = (mixer.num_heads or 0) * (mixer.head_dim or 0)
    return 4 * rows * width * keys * len(model.layers)
