"""Nanoseconds that a device computes. Every term is rounded up to whole ns by itself, then summed.

kernel   max(bytes / read rate, flops / matmul rate) + launch; prompt rows in whole blocks
layer    its kernels, and the KV and state that a decode row reads
"""

from dataclasses import dataclass
from math import ceil

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.groups import EXCHANGE_LAUNCHES
from plancc.ir.kernel_spec import (
    EMBED_LAUNCHES,
    HEAD_LAUNCHES,
    layer_flops_per_row,
    mixer_launches,
    mixer_reads,
    mlp_launches,
    mlp_reads,
)
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import kv_bytes_per_token
from plancc.ir.topology import Device

Share = tuple[int, int]


@dataclass(frozen=True)
class Work:
    """What a step asks of every layer: `rows` rows, each over `context` tokens of KV.

    Rows of a prompt of `prompt` tokens; None: decode rows.
    """

    rows: int
    context: int
    kv_dtype: str
    prompt: int | None = None


def product_rows(device: Device, work: Work) -> int:
    """Rows that the device computes."""
    return work.rows if work.prompt is None else device.computed_rows(work.rows)


def launch_ns(device: Device) -> int:
    return ceil(round(device.launch_us * 1e3, 3))


def matmul_ns(device: Device, flops: float, rows: int, dtype: str) -> int:
    """flops / rate at so many rows; 0 where the topology gives no rate for so few rows.

    Below the first measured point a row is a decode row, which the read curve describes.
    """
    points = device.points_of(dtype)
    if points and rows < points[0][0]:
        return 0
    tflops = device.matmul_tflops(rows, dtype)
    return ceil(flops / (tflops * 1e12) * 1e9) if tflops else 0


def kernel_ns(device: Device, size_bytes: float, work: Work, dtype: str, flops: float = -1) -> int:
    """max(read, matmul) of one kernel; flops default to two per weight and row."""
    rows = product_rows(device, work)
    if flops < 0:
        flops = 2 * (size_bytes / ITEMSIZE[dtype]) * rows
    read = device.read_curve().ns(size_bytes)
    return max(read, matmul_ns(device, flops, rows, dtype))


def mixer_ns(model: ModelShape, device: Device, layer: Layer, work: Work) -> int:
    """Kernels of the mixer that stream weights, launches included."""
    kernels = _weights_ns(model, device, layer, work, mixer_reads(layer))
    return kernels + mixer_launches(layer) * launch_ns(device)


def mlp_ns(
    model: ModelShape, device: Device, layer: Layer, work: Work, share: Share | None = None
) -> int:
    """Kernels of the MLP, or of tiles [first, end) of it; the sum over a cut MLP's tree too."""
    kernels = _weights_ns(model, device, layer, work, mlp_reads(layer, work.rows, share))
    launches = mlp_launches(layer) + (EXCHANGE_LAUNCHES if share is not None else 0)
    return kernels + launches * launch_ns(device)


def _weights_ns(
    model: ModelShape, device: Device, layer: Layer, work: Work, reads: tuple[float, ...]
) -> int:
    """Where the layer says its flops, a kernel has its part of them by bytes."""
    if layer.flops_per_token is None:
        return sum(kernel_ns(device, size, work, model.dtype) for size in reads)
    whole = sum(mixer_reads(layer)) + sum(mlp_reads(layer, work.rows))
    flops = layer_flops_per_row(layer, ITEMSIZE[model.dtype]) * product_rows(device, work)
    return sum(
        kernel_ns(device, size, work, model.dtype, flops * size / whole if whole > 0 else -1)
        for size in reads
    )


def state_ns(model: ModelShape, device: Device, index: int, work: Work) -> int:
    """KV read by `rows` decode rows (a window's at most), and recurrent state read and written."""
    layer = model.layers[index]
    source = model.layers[layer.kv_from] if layer.kv_from is not None else layer
    keys = min(work.context, layer.mixer.window or work.context)
    kv = work.rows * keys * kv_bytes_per_token(model, source, work.kv_dtype)
    curve = device.read_curve()
    return curve.ns(kv) + curve.ns(2 * work.rows * layer.state_bytes_per_slot)


def attend_ns(model: ModelShape, device: Device, index: int, work: Work, prompt: int) -> int:
    """Attention of a prompt chunk: 4 flops a head element, row and key.

    A row sees (prompt + 1) / 2 keys in the mean, a window's at most; KV bytes stay in cache. At the
    rate of matrix products, or of attention where the topology says one and that is slower.
    """
    mixer = model.layers[index].mixer
    heads = (mixer.num_heads or 0) * (mixer.head_dim or 0)
    keys = min(mixer.window or prompt, (prompt + 1) / 2)
    flops, tflops = 4 * work.rows * heads * keys, device.attention_tflops
    slower = ceil(flops / (tflops * 1e12) * 1e9) if tflops else 0
    return max(matmul_ns(device, flops, product_rows(device, work), model.dtype), slower)


def layer_parts_ns(
    model: ModelShape, device: Device, index: int, work: Work, share: Share | None = None
) -> tuple[int, int]:
    """(mixer with the KV and state that it meets, MLP or its share) of one layer on one device."""
    layer = model.layers[index]
    mixer, mlp = mixer_ns(model, device, layer, work), mlp_ns(model, device, layer, work, share)
    if work.prompt is not None:
        return mixer + attend_ns(model, device, index, work, work.prompt), mlp
    return mixer + state_ns(model, device, index, work), mlp


def layer_ns(model: ModelShape, device: Device, index: int, work: Work) -> int:
    """One whole layer of a step on one device."""
    return sum(layer_parts_ns(model, device, index, work))


def embed_ns(model: ModelShape, device: Device) -> int:
    return EMBED_LAUNCHES * launch_ns(device) if model.block("embed") else 0


def head_ns(model: ModelShape, device: Device, work: Work) -> int:
    """The whole head is read in a step; 0 for a model that names none."""
    head = model.block("head")
    if head is None:
        return 0
    kernel = kernel_ns(device, head.weight_bytes, work, model.dtype)
    return kernel + HEAD_LAUNCHES * launch_ns(device)
