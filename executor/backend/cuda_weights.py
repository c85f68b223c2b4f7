"""Weights of a rank on its device: q, k and v in one matrix, gate and up in one.

Gate and up may be one tensor of the checkpoint already: then its piece is gate, then up, whatever
their order in the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_memory import Arena, Shape, total_bytes
from plancc.ir.tensors import TensorPiece

_BLOCKS: Mapping[str, str] = {
    "model.embed_tokens.weight": "embedding",
    "model.norm.weight": "final_norm",
    "lm_head.weight": "head",
}
_LAYER: Mapping[str, str] = {
    "input_layernorm": "input_norm",
    "self_attn.q_proj": "qkv",
    "self_attn.k_proj": "qkv",
    "self_attn.v_proj": "qkv",
    "self_attn.o_proj": "output",
    "post_attention_layernorm": "mlp_norm",
    "mlp.gate_proj": "gate_up",
    "mlp.up_proj": "gate_up",
    "mlp.gate_up_proj": "gate_up",
    "mlp.down_proj": "down",
}
_PREFIX = "model.layers."


@dataclass(frozen=True)
class DeviceWeights:
    """`buffers` by name: embedding, final_norm, head; `3.qkv` and `3.qkv_bias` of layer 3."""

    buffers: Mapping[str, torch.Tensor]
    views: Mapping[str, torch.Tensor]

    def block_bytes(self) -> int:
        return total_bytes(t for name, t in self.buffers.items() if name in _BLOCKS.values())

    def layer_bytes(self) -> int:
        return total_bytes(t for name, t in self.buffers.items() if name not in _BLOCKS.values())


def allocate_weights(
    pieces: tuple[TensorPiece, ...], dtype: torch.dtype, arena: Arena
) -> DeviceWeights:
    """Room for the pieces; those of one buffer lie there in the order given."""
    places: dict[str, tuple[str, int]] = {}
    shapes: dict[str, Shape] = {}
    for piece in pieces:
        name = _buffer_of(piece.spec.name)
        first = shapes[name][0] if name in shapes else 0
        places[piece.spec.name] = (name, first)
        shapes[name] = (first + piece.shape[0], *piece.shape[1:])
    buffers = arena.cut({name: (shape, dtype) for name, shape in shapes.items()})
    views = {}
    for piece in pieces:
        name, first = places[piece.spec.name]
        views[piece.spec.name] = buffers[name][first : first + piece.shape[0]]
    return DeviceWeights(buffers, views)


def _buffer_of(tensor: str) -> str:
    """The buffer that a tensor of a checkpoint is a part of."""
    if not tensor.startswith(_PREFIX):
        return _BLOCKS[tensor]
    index, name = tensor.removeprefix(_PREFIX).split(".", 1)
    module, _, kind = name.rpartition(".")
    return f"{index}.{_LAYER[module]}" + ("_bias" if kind == "bias" else "")
