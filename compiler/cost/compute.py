"""Nanoseconds that a device computes. Every term is rounded up to whole ns by itself, then summed.

kernel   max(bytes / read rate, flops / matmul rate) + launch
layer    its kernels, and the KV and state that a decode row reads
"""

from dataclasses import dataclass
from math import ceil

from plancc.ir.dtype import ITEMSIZE
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
    """What a step asks of every layer: `rows` rows, each over `context` tokens of KV."""

    rows: int
    context: int
    kv_dtype: str


def launch_ns(device: Device) -> int:
    return ceil(round(device.launch_us * 1e3, 3))


def matmul_ns(device: Device, flops: float, rows: int, dtype: str) -> int:
    """flops / rate at so many rows; 0 where the topology gives no rate for so few rows.

    Below the first measured point a row is a decode row, which the read curve describes.
    """
    points = device.matmul_points
    if points and rows < points[0][0]:
        return 0
    tflops = device.matmul_tflops(rows, dtype)
    return ceil(flops / (tflops * 1e12) * 1e9) if tflops else 0


def kernel_ns(device: Device, size_bytes: float, work: Work, dtype: str, flops: float = -1) -> int:
    """max(read, matmul) of one kernel; flops default to two per weight and row."""
    if flops < 0:
        flops = 2 * (size_bytes / ITEMSIZE[dtype]) * work.rows
    read = device.read_curve().ns(size_bytes)
    return max(read, matmul_ns(device, flops, work.rows, dtype))


def layer_kernels_ns(
    model: ModelShape, device: Device, layer: Layer, work: Work, share: Share | None = None
) -> tuple[int, int]:
    """(mixer, MLP) ns of the kernels that stream weights, launches included."""
    mixer, mlp = mixer_reads(layer), mlp_reads(layer, work.rows, share)
    whole = sum(mixer) + sum(mlp_reads(layer, work.rows))
    total_flops = layer_flops_per_row(layer, ITEMSIZE[model.dtype]) * work.rows

    def one(size: float) -> int:
        said = layer.flops_per_token is not None and whole > 0
        flops = total_flops * size / whole if said else -1
        return kernel_ns(device, size, work, model.dtype, flops)

    launch = launch_ns(device)
    return (
        sum(map(one, mixer)) + mixer_launches(layer) * launch,
        sum(map(one, mlp)) + mlp_launches(layer) * launch,
    )


def state_ns(model: ModelShape, device: Device, index: int, work: Work) -> int:
    """KV read by `rows` decode rows (a window's at most), and recurrent state read and written."""
    layer = model.layers[index]
    source = model.layers[layer.kv_from] if layer.kv_from is not None else layer
    keys = min(work.context, layer.mixer.window or work.context)
    kv = work.rows * keys * kv_bytes_per_token(model, source, work.kv_dtype)
    curve = device.read_curve()
    return curve.ns(kv) + curve.ns(2 * work.rows * layer.state_bytes_per_slot)


def decode_layer_ns(model: ModelShape, device: Device, index: int, work: Work) -> int:
    """One layer of a decode step on one device."""
    mixer, mlp = layer_kernels_ns(model, device, model.layers[index], work)
    return mixer + mlp + state_ns(model, device, index, work)


def prompt_layer_ns(model: ModelShape, device: Device, index: int, work: Work, prompt: int) -> int:
    """One layer of a prompt chunk: its kernels, and 4 flops a head element, row and key.

    A row sees (prompt + 1) / 2 keys in the mean, a window's at most; KV bytes stay in cache.
    """
    layer = model.layers[index]
    mixer, mlp = layer_kernels_ns(model, device, layer, work)
    heads = (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)
    keys = min(layer.mixer.window or prompt, (prompt + 1) / 2)
    return mixer + mlp + matmul_ns(device, 4 * work.rows * heads * keys, work.rows, model.dtype)


def embed_ns(model: ModelShape, device: Device) -> int:
    return EMBED_LAUNCHES * launch_ns(device) if model.block("embed") else 0


def head_ns(model: ModelShape, device: Device, work: Work) -> int:
    """The whole head is read in a step; 0 for a model that names none."""
    head = model.block("head")
    if head is None:
        return 0
    kernel = kernel_ns(device, head.weight_bytes, work, model.dtype)
    return kernel + HEAD_LAUNCHES * launch_ns(device)
