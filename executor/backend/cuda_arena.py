"""How much a rank on a card allocates: weights, scratch and KV in one piece."""

from math import prod

import torch

from plancc.executor.backend.cuda_memory import Arena, arena_for
from plancc.executor.backend.cuda_scratch import scratch_sizes
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import layer_kv_bytes
from plancc.ir.tensors import TensorPiece
from plancc.ir.tiles import Span


def rank_arena(
    model: ModelShape, runtime: Runtime, layers: Span, kept: Span,
    pieces: tuple[TensorPiece, ...], device: torch.device, *, has_head: bool,
) -> Arena:  # fmt: skip
    """Room for a rank that runs `layers` and keeps the KV of `kept`.

    One allocation, since each may take a part of a page of the device more than it uses.
    """
    weights = [prod(piece.shape) * ITEMSIZE[model.dtype] for piece in pieces]
    scratch = scratch_sizes(model, runtime, model.layers[slice(*layers)], has_head=has_head)
    return arena_for([weights, scratch.values(), _plane_bytes(model, runtime, kept)], device)


def _plane_bytes(model: ModelShape, runtime: Runtime, kept: Span) -> list[int]:
    """Of each layer's keys, and of its values, which are as many."""
    sizes = [layer_kv_bytes(model, layer, context=runtime.context, slots=runtime.slots,
                            prefill_chunk=runtime.prefill_chunk, kv_dtype=runtime.kv_dtype)
             for layer in model.layers[slice(*kept)]]  # fmt: skip
    return [size // 2 for size in sizes for _ in range(2)]
