"""The clock of `plancc check`: times of a plan, from layers, curves and links.

Whole nanoseconds, each term rounded up:

    kernel  max(bytes by the read curve, flops by the matmul rate where one applies to these rows)
    layer   its kernels, its KV and state, a launch for each kernel
    hop     the link's curve; between two seats of one device its own memory, twice, and a launch
"""

from dataclasses import dataclass
from math import ceil

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.kernel_spec import (
    EMBED_LAUNCHES,
    HEAD_LAUNCHES,
    mixer_launches,
    mixer_reads,
    mlp_launches,
    mlp_reads,
)
from plancc.ir.layers import Layer
from plancc.ir.plan import Plan, Stage, StageTime
from plancc.ir.sizes import hidden_row_bytes, kv_bytes_per_token
from plancc.ir.topology import Device, Topology

TOKEN_BACK_BYTES = 64


@dataclass(frozen=True)
class Clock:
    """Predicted times of one plan on one topology."""

    plan: Plan
    topology: Topology

    def decode_stages(self, rows: int) -> tuple[StageTime, ...]:
        """Compute and outgoing hop of each stage for a decode step of so many rows."""
        return tuple(
            StageTime(compute_ns=self._decode_ns(index, rows), hop_ns=self._hop_ns(index, rows))
            for index in range(len(self.plan.stages))
        )

    def prefill_stages(self, rows: int) -> tuple[StageTime, ...] | None:
        """The same for a chunk of a prompt; None where a device has no known matmul rate."""
        devices = [self._device(stage) for stage in self.plan.stages]
        if any(device.matmul_tflops(rows, self.plan.model.dtype) is None for device in devices):
            return None
        return tuple(
            StageTime(compute_ns=self._prefill_ns(index, rows), hop_ns=self._hop_ns(index, rows))
            for index in range(len(self.plan.stages))
        )

    def _device(self, stage: Stage) -> Device:
        device = self.topology.device(stage.ranks[0].device)
        assert device is not None
        return device

    def _decode_ns(self, index: int, rows: int) -> int:
        stage = self.plan.stages[index]
        device = self._device(stage)
        layers = [self.plan.model.layers[layer] for layer in range(*stage.layers)]
        curve = device.read_curve()
        compute = sum(self._layer_ns(device, layer, rows) for layer in layers)
        kept = sum(curve.ns(self._kv_read_bytes(layer, rows)) for layer in layers)
        kept += sum(curve.ns(2 * rows * layer.state_bytes_per_slot) for layer in layers)
        return compute + kept + self._ends_ns(device, index, rows, with_head=True)

    def _prefill_ns(self, index: int, rows: int) -> int:
        stage = self.plan.stages[index]
        device = self._device(stage)
        layers = [self.plan.model.layers[layer] for layer in range(*stage.layers)]
        compute = sum(self._layer_ns(device, layer, rows) for layer in layers)
        attention = sum(self._attention_ns(device, layer, rows) for layer in layers)
        return compute + attention + self._ends_ns(device, index, rows, with_head=False)

    def _layer_ns(self, device: Device, layer: Layer, rows: int) -> int:
        """Weights and launches of a layer; its KV and state apart."""
        mixer, mlp = mixer_reads(layer), mlp_reads(layer, rows)
        total = sum(mixer) + sum(mlp)
        kernels = sum(self._kernel_ns(device, size, rows, layer, total) for size in (*mixer, *mlp))
        return kernels + (mixer_launches(layer) + mlp_launches(layer)) * _launch_ns(device)

    def _kernel_ns(
        self, device: Device, size: float, rows: int, layer: Layer | None, total: float
    ) -> int:
        read = device.read_curve().ns(size)
        rate = _matmul_rate(device, rows, self.plan.model.dtype)
        if rate is None:
            return read
        if layer is not None and layer.flops_per_token is not None and total > 0:
            flops = layer.flops_per_token * rows * size / total
        else:
            flops = 2 * (size / ITEMSIZE[self.plan.model.dtype]) * rows
        return max(read, ceil(flops / (rate * 1e12) * 1e9))

    def _kv_read_bytes(self, layer: Layer, rows: int) -> int:
        """A row reads all that its layer keeps of its slot; borrowed KV is read like one's own."""
        run, model = self.plan.runtime, self.plan.model
        owner = layer if layer.kv_from is None else model.layers[layer.kv_from]
        tokens = min(run.context, layer.mixer.window or run.context)
        return rows * tokens * kv_bytes_per_token(model, owner, run.kv_dtype)

    def _attention_ns(self, device: Device, layer: Layer, rows: int) -> int:
        """Scores and weighted values of a chunk, over the mean number of keys of the prompt."""
        mixer, prompt = layer.mixer, self.plan.ask.prompt or 1
        rate = _matmul_rate(device, rows, self.plan.model.dtype)
        if not (mixer.num_heads and mixer.head_dim) or rate is None:
            return 0
        keys = min(mixer.window or prompt, (prompt + 1) / 2)
        return ceil(4 * rows * mixer.num_heads * mixer.head_dim * keys / (rate * 1e12) * 1e9)

    def _ends_ns(self, device: Device, index: int, rows: int, *, with_head: bool) -> int:
        blocks, time = self.plan.stages[index].blocks, 0
        if "embed" in blocks:
            time += EMBED_LAUNCHES * _launch_ns(device)
        head = self.plan.model.block("head")
        if with_head and "head" in blocks and head is not None:
            time += self._kernel_ns(device, head.weight_bytes, rows, None, 0.0)
            time += HEAD_LAUNCHES * _launch_ns(device)
        return time

    def _hop_ns(self, index: int, rows: int) -> int:
        """To the next stage; from the last one the row or only its token goes back, if away."""
        stages, row_bytes = self.plan.stages, rows * hidden_row_bytes(self.plan.model)
        if index + 1 < len(stages):
            return self._transfer_ns(stages[index], stages[index + 1], row_bytes)
        if len(stages) == 1:
            return 0
        size = row_bytes if "head" in stages[0].blocks else TOKEN_BACK_BYTES
        return self._transfer_ns(stages[-1], stages[0], size)

    def _transfer_ns(self, source: Stage, target: Stage, size: int) -> int:
        sender = self._device(source)
        link = self.topology.link(sender.name, target.ranks[0].device)
        if link is not None:
            return link.curve().ns(size)
        return sender.read_curve().ns(2 * size) + _launch_ns(sender)


def _launch_ns(device: Device) -> int:
    return ceil(round(device.launch_us * 1000, 3))


def _matmul_rate(device: Device, rows: int, dtype: str) -> float | None:
    """TFLOP/s where it says something of so few rows; a decode row goes by the read curve."""
    if device.matmul_points and rows < device.matmul_points[0][0]:
        return None
    return device.matmul_tflops(rows, dtype)
