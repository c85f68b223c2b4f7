"""The clock of `plancc check` for one device: ns of a mixer, of a share of an MLP, of the ends.

Whole nanoseconds, each term rounded up:

    kernel  max(bytes by the read curve, flops by the matmul rate where one applies to these rows),
            a prompt's rows filled up to the device's blocks
    mixer   its kernels and launches; KV and state read by a decode row, or a prompt's attention
    mlp     its kernels, or those of a run of tiles, and launches; a cut one's sum is one more
"""

from dataclasses import dataclass
from math import ceil

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.groups import EXCHANGE_LAUNCHES
from plancc.ir.kernel_spec import (
    EMBED_LAUNCHES,
    HEAD_LAUNCHES,
    mixer_launches,
    mixer_reads,
    mlp_launches,
    mlp_reads,
)
from plancc.ir.layers import Layer
from plancc.ir.plan import Plan
from plancc.ir.sizes import kv_bytes_per_token
from plancc.ir.tiles import Span
from plancc.ir.topology import Device


@dataclass(frozen=True)
class RankClock:
    """A step of `rows` decode rows of the plan, or of a prompt chunk's, on one device."""

    plan: Plan
    device: Device
    rows: int
    is_prompt: bool

    def mixer_ns(self, layer: Layer) -> int:
        kernels = sum(self._kernel_ns(size, layer) for size in mixer_reads(layer))
        spent = kernels + mixer_launches(layer) * self.launch_ns
        if self.is_prompt:
            return spent + self._attention_ns(layer)
        curve = self.device.read_curve()
        state = curve.ns(2 * self.rows * layer.state_bytes_per_slot)
        return spent + curve.ns(self._kv_read_bytes(layer)) + state

    def mlp_ns(self, layer: Layer, share: Span | None) -> int:
        """`share` None: the whole MLP, of a stage that is no group."""
        launches = mlp_launches(layer) + (0 if share is None else EXCHANGE_LAUNCHES)
        reads = mlp_reads(layer, self.rows, share)
        return sum(self._kernel_ns(size, layer) for size in reads) + launches * self.launch_ns

    def ends_ns(self, blocks: tuple[str, ...]) -> int:
        """Embedding and head of the blocks here; a prompt's head runs once and is not counted."""
        head, time = self.plan.model.block("head"), 0
        if "embed" in blocks:
            time += EMBED_LAUNCHES * self.launch_ns
        if not self.is_prompt and "head" in blocks and head is not None:
            time += self._kernel_ns(head.weight_bytes, None) + HEAD_LAUNCHES * self.launch_ns
        return time

    @property
    def launch_ns(self) -> int:
        return ceil(round(self.device.launch_us * 1000, 3))

    def _kernel_ns(self, size: float, layer: Layer | None) -> int:
        read, rate = self.device.read_curve().ns(size), self._matmul_rate()
        if rate is None:
            return read
        return max(read, ceil(self._flops(size, layer) / (rate * 1e12) * 1e9))

    def _flops(self, size: float, layer: Layer | None) -> float:
        """Two a weight and row; what a layer says of itself is shared out by its whole bytes."""
        if layer is not None and layer.flops_per_token is not None:
            whole = sum(mixer_reads(layer)) + sum(mlp_reads(layer, self.rows))
            if whole > 0:
                return layer.flops_per_token * self._filled * size / whole
        return 2 * (size / ITEMSIZE[self.plan.model.dtype]) * self._filled

    def _matmul_rate(self) -> float | None:
        """TFLOP/s where it says something of so few rows; a decode row goes by the read curve."""
        points = self.device.points_of(self.plan.model.dtype)
        if points and self._filled < points[0][0]:
            return None
        return self.device.matmul_tflops(self._filled, self.plan.model.dtype)

    @property
    def _filled(self) -> int:
        over = self.rows % (self.device.row_block or 1) if self.is_prompt else 0
        return self.rows - over + (self.device.row_block or 1 if over else 0)

    def _kv_read_bytes(self, layer: Layer) -> int:
        """A row reads all that its layer keeps of its slot; borrowed KV is read like one's own."""
        run, model = self.plan.runtime, self.plan.model
        owner = layer if layer.kv_from is None else model.layers[layer.kv_from]
        tokens = min(run.context, layer.mixer.window or run.context)
        return self.rows * tokens * kv_bytes_per_token(model, owner, run.kv_dtype)

    def _attention_ns(self, layer: Layer) -> int:
        """Scores and weighted values of a chunk, over the mean number of keys of the prompt."""
        mixer, prompt = layer.mixer, self.plan.ask.prompt or 1
        said = (self._matmul_rate(), self.device.attention_tflops)
        rate = min((rate for rate in said if rate is not None), default=None)
        if not (mixer.num_heads and mixer.head_dim) or rate is None:
            return 0
        keys = min(mixer.window or prompt, (prompt + 1) / 2)
        return ceil(4 * self.rows * mixer.num_heads * mixer.head_dim * keys / (rate * 1e12) * 1e9)
