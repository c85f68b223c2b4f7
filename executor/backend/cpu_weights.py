"""Weights of a rank as kernels want them: q, k and v in one matrix, gate and up in one."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plancc.executor.backend.cpu_memory import Shape, allocate, total_bytes
from plancc.ir.tensors import TensorPiece

BLOCK_BUFFERS: Mapping[str, str] = {
    "model.embed_tokens.weight": "embedding",
    "model.norm.weight": "final_norm",
    "lm_head.weight": "head",
}
_LAYER_BUFFERS: Mapping[str, str] = {
    "input_layernorm.weight": "input_norm",
    "self_attn.q_proj.weight": "qkv",
    "self_attn.k_proj.weight": "qkv",
    "self_attn.v_proj.weight": "qkv",
    "self_attn.q_proj.bias": "qkv_bias",
    "self_attn.k_proj.bias": "qkv_bias",
    "self_attn.v_proj.bias": "qkv_bias",
    "self_attn.o_proj.weight": "output",
    "self_attn.o_proj.bias": "output_bias",
    "post_attention_layernorm.weight": "mlp_norm",
    "mlp.gate_proj.weight": "gate_up",
    "mlp.up_proj.weight": "gate_up",
    "mlp.gate_up_proj.weight": "gate_up",
    "mlp.gate_up_proj.bias": "gate_up_bias",
    "mlp.gate_proj.bias": "gate_up_bias",
    "mlp.up_proj.bias": "gate_up_bias",
    "mlp.down_proj.weight": "down",
    "mlp.down_proj.bias": "down_bias",
}
_LAYER_PREFIX = "model.layers."


@dataclass(frozen=True)
class CpuWeights:
    """`buffers` by name: those of BLOCK_BUFFERS, and `3.qkv` for one of layer 3."""

    buffers: Mapping[str, torch.Tensor]
    block_bytes: int
    layer_bytes: int
    _views: Mapping[str, torch.Tensor]

    def parameter(self, piece: TensorPiece) -> torch.Tensor:
        """The piece's view."""
        return self._views[piece.spec.name]

    def address(self, name: str) -> int:
        """Of a buffer's first number; 0 where the rank has no such buffer."""
        tensor = self.buffers.get(name)
        return 0 if tensor is None else tensor.data_ptr()


def allocate_weights(pieces: tuple[TensorPiece, ...], dtype: torch.dtype) -> CpuWeights:
    """Room for the pieces, which lie in their buffer in the order given."""
    heights: dict[str, int] = {}
    places: dict[str, tuple[str, int]] = {}
    shapes: dict[str, Shape] = {}
    for piece in pieces:
        name, rows = _buffer_of(piece.spec.name), piece.shape[0]
        places[piece.spec.name] = (name, heights.get(name, 0))
        heights[name] = heights.get(name, 0) + rows
        shapes[name] = (heights[name], *piece.shape[1:])
    buffers = allocate({name: (shape, dtype) for name, shape in shapes.items()})
    views = {}
    for piece in pieces:
        name, first = places[piece.spec.name]
        views[piece.spec.name] = buffers[name][first : first + piece.shape[0]]
    is_block = set(BLOCK_BUFFERS.values()).__contains__
    return CpuWeights(
        buffers=buffers,
        block_bytes=total_bytes(t for name, t in buffers.items() if is_block(name)),
        layer_bytes=total_bytes(t for name, t in buffers.items() if not is_block(name)),
        _views=views,
    )


def _buffer_of(tensor: str) -> str:
    if not tensor.startswith(_LAYER_PREFIX):
        return BLOCK_BUFFERS[tensor]
    index, suffix = tensor.removeprefix(_LAYER_PREFIX).split(".", 1)
    return f"{index}.{_LAYER_BUFFERS[suffix]}"
