"""Scratch of one rank, by name: the executor allocates these, the ledger counts them.

A step carries at most R rows (`sizes.step_rows`), which arrive and leave in the model's format.
Between kernels rows are float32, PROMPT_BLOCK_ROWS prompt rows or every decode row at a time, so
wide scratch is a block, not R. No matrix is ever copied.
"""

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape

PROMPT_BLOCK_ROWS = 64
_FP32 = 4


def activation_buffers(
    model: ModelShape, layers: tuple[Layer, ...], rows: int, *, has_head: bool, slots: int
) -> dict[str, int]:
    """Bytes of each scratch buffer of a rank that runs `layers`; {} when geometry is unknown."""
    sized = [layer for layer in layers if layer.mixer.num_heads and layer.mixer.head_dim]
    if model.geometry is None or (layers and not sized):
        return {}
    block = block_rows(slots) * _FP32
    queries = max((_query_width(layer) for layer in sized), default=0)
    qkv = max((_query_width(layer) + (layer.mixer.kv_width() or 0) for layer in sized), default=0)
    buffers = {
        "hidden": rows * model.hidden_size * ITEMSIZE[model.dtype],
        "residual": block * model.hidden_size,
        "normed": block * model.hidden_size,
        "qkv": block * qkv,
        "attended": block * queries,
        "activated": block * max((_mlp_width(layer) for layer in sized), default=0),
        "rope": block * len(model.geometry.rope) * rope_width(layers),
        "logits": slots * (model.vocab_size or 0) * _FP32 if has_head else 0,
    }
    return {name: size for name, size in buffers.items() if size}


def workspace_bytes(
    model: ModelShape, layers: tuple[Layer, ...], rows: int, *, has_head: bool, slots: int
) -> int:
    """Scratch of one rank: its named buffers, and the largest workspace a layer declares."""
    declared = max((layer.workspace_bytes for layer in layers), default=0)
    buffers = activation_buffers(model, layers, rows, has_head=has_head, slots=slots)
    return declared + sum(buffers.values())


def block_rows(slots: int) -> int:
    """Rows that the kernels hold at a time."""
    return max(PROMPT_BLOCK_ROWS, slots)


def rope_width(layers: tuple[Layer, ...]) -> int:
    """Numbers in a row of cosines and sines: those of the widest head, rotated in whole or not."""
    return max((layer.mixer.head_dim or 0 for layer in layers), default=0)


def _query_width(layer: Layer) -> int:
    return (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)


def _mlp_width(layer: Layer) -> int:
    return (layer.mlp.intermediate_size or 0) if isinstance(layer.mlp, DenseMlp) else 0
