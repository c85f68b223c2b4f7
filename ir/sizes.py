"""Bytes: the sums that compiler, checker and executor must agree on to the byte.

Memory of one device (design.md section 6), for what is placed on it:

    weights + kv + state + blocks + hop_buffers + workspace + overhead <= free - reserve

kv of a layer is rows x bytes per token. A slot needs min(context, window + chunk) rows; slots are
whole pages but for the pool's very last one, so one slot costs exactly its rows.
"""

from plancc.ir.dtype import ITEMSIZE
from plancc.ir.errors import BadInput
from plancc.ir.layers import Block, DenseMlp, Layer
from plancc.ir.manifest import ModelShape

PAGE_TOKENS = 16
LINK_SLOTS = 2


def kv_rows_per_slot(layer: Layer, context: int, prefill_chunk: int) -> int:
    """Tokens whose K and V a slot keeps in this layer; 0 where another layer's are read."""
    if layer.kv_from is not None or kv_bytes_per_token_of(layer) == 0:
        return 0
    if layer.mixer.window is None:
        return context
    return min(context, layer.mixer.window + prefill_chunk)


def kv_bytes_per_token_of(layer: Layer) -> int | None:
    """Declared bytes a token (model dtype); None when only geometry says it."""
    if layer.kv_from is not None:
        return 0
    if layer.mixer.kv_bytes_per_token is None and layer.mixer.kv_width() is None:
        return 0
    return layer.mixer.kv_bytes_per_token


def kv_bytes_per_token(model: ModelShape, layer: Layer, kv_dtype: str) -> int:
    """K and V bytes of one token in one layer, at the asked cache dtype.

    Raises BadInput when the dtype differs from the model's and the geometry is unknown.
    """
    declared = kv_bytes_per_token_of(layer)
    if declared == 0:
        return 0
    width = layer.mixer.kv_width()
    if width is not None:
        return width * ITEMSIZE[kv_dtype]
    assert declared is not None
    if kv_dtype != model.dtype:
        raise BadInput(
            f"--kv-dtype {kv_dtype}: {model.name} is {model.dtype} and gives KV as bytes only; "
            f"add num_kv_heads and head_dim (or k_dim and v_dim) to its mixers"
        )
    return declared


def kv_pool_rows(rows_per_slot: int, slots: int) -> int:
    """Rows that all slots need: whole pages, but for the last page of the last slot."""
    if rows_per_slot == 0:
        return 0
    pages = -(-rows_per_slot // PAGE_TOKENS)
    return (slots - 1) * pages * PAGE_TOKENS + rows_per_slot


def layer_kv_bytes(
    model: ModelShape, layer: Layer, *, context: int, slots: int, prefill_chunk: int, kv_dtype: str
) -> int:
    """Bytes of K and V of one layer, all slots."""
    rows = kv_pool_rows(kv_rows_per_slot(layer, context, prefill_chunk), slots)
    return rows * kv_bytes_per_token(model, layer, kv_dtype) if rows else 0


def layer_weight_bytes(layer: Layer, share: tuple[int, int] | None = None) -> int:
    """Weights of a layer with its whole MLP, or with tiles [first, end) of it."""
    if share is None or not isinstance(layer.mlp, DenseMlp):
        return layer.weight_bytes
    return layer.mixer.weight_bytes + layer.mlp.uncut_bytes + layer.mlp.share_bytes(*share)


def hidden_row_bytes(model: ModelShape) -> int:
    """One residual row, as a hop carries it."""
    return model.hidden_size * ITEMSIZE[model.dtype]


def step_rows(slots: int, prefill_chunk: int) -> int:
    """The most rows that one step carries."""
    return max(slots, prefill_chunk)


def hop_buffer_bytes(model: ModelShape, rows: int) -> int:
    """Buffers of one end of one hidden-row link: LINK_SLOTS whole steps."""
    return LINK_SLOTS * rows * hidden_row_bytes(model)


def head_extra_bytes(head: Block, embed: Block | None) -> int:
    """What the head costs on the device that already holds the embedding it is tied to."""
    if head.tied_to is None or embed is None:
        return head.resident_bytes
    return max(0, head.weight_bytes - embed.weight_bytes) + head.workspace_bytes
