"""Scratch of a CPU rank: the buffers of ir.buffers, as tensors."""

from typing import Any

import torch

from plancc.executor.backend.cpu_memory import allocate
from plancc.ir.buffers import Capacity, scratch_buffers
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime


def allocate_scratch(
    model: ModelShape, layers: tuple[int, int], runtime: Runtime, *, has_head: bool
) -> dict[str, torch.Tensor]:
    """Rows in the model's format, logits [slots, vocab_size], the rest flat float32."""
    capacity = Capacity(runtime.slots, runtime.prefill_chunk, runtime.context)
    sizes = scratch_buffers(
        model, model.layers[slice(*layers)], capacity, layout="block", has_head=has_head
    )
    shapes = {name: ((size // 4,), torch.float32) for name, size in sizes.items()}
    dtype = getattr(torch, model.dtype)
    scratch: dict[str, Any] = shapes | {"hidden": ((capacity.rows, model.hidden_size), dtype)}
    if has_head:
        scratch["logits"] = ((capacity.slots, model.vocab_size), torch.float32)
    return allocate(scratch)
