"""Scratch of one rank, by name: the executor allocates these, the ledger counts them.

A step carries at most R rows (`sizes.step_rows`). Prompt rows are computed in fixed blocks of
PROMPT_BLOCK_ROWS aligned to position 0, so wide fp32 scratch is one block wide, not R.
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
    item = ITEMSIZE[model.dtype]
    queries = max((_query_width(layer) for layer in sized), default=0)
    values = max((layer.mixer.kv_width() or 0 for layer in sized), default=0)
    inner = max((_mlp_width(layer) for layer in sized), default=0)
    buffers = {
        "hidden": rows * model.hidden_size * item,
        "normed": rows * model.hidden_size * item,
        "qkv": rows * (queries + values) * item,
        "attended": rows * queries * item,
        "activated": rows * inner * item,
        "block_fp32": PROMPT_BLOCK_ROWS
        * max(queries + values, 2 * inner, model.hidden_size)
        * _FP32,
        "tree_fp32": PROMPT_BLOCK_ROWS * model.hidden_size * _FP32 * _tree_depth(sized),
    }
    if model.dtype != "float32":
        buffers["matrix_fp32"] = _largest_matrix(model, sized) * _FP32
    if has_head and model.vocab_size:
        buffers["logits"] = slots * model.vocab_size * _FP32
    return {name: size for name, size in buffers.items() if size}


def workspace_bytes(
    model: ModelShape, layers: tuple[Layer, ...], rows: int, *, has_head: bool, slots: int
) -> int:
    """Scratch of one rank: its named buffers, and the largest workspace a layer declares."""
    declared = max((layer.workspace_bytes for layer in layers), default=0)
    buffers = activation_buffers(model, layers, rows, has_head=has_head, slots=slots)
    return declared + sum(buffers.values())


def _query_width(layer: Layer) -> int:
    return (layer.mixer.num_heads or 0) * (layer.mixer.head_dim or 0)


def _mlp_width(layer: Layer) -> int:
    return (layer.mlp.intermediate_size or 0) if isinstance(layer.mlp, DenseMlp) else 0


def _tree_depth(layers: list[Layer]) -> int:
    """Partial rows alive at once while the tree is added depth first: its height + 1."""
    tiles = [layer.mlp.num_tiles for layer in layers if isinstance(layer.mlp, DenseMlp)]
    return (max(tiles, default=1) - 1).bit_length() + 1


def _largest_matrix(model: ModelShape, layers: list[Layer]) -> int:
    widths = [_query_width(layer) + (layer.mixer.kv_width() or 0) for layer in layers]
    widths += [2 * _mlp_width(layer) for layer in layers]
    return max(widths, default=0) * model.hidden_size
