"""Scratch of a CPU rank: the buffers of ir.buffers, as tensors."""

from typing import Any

import torch

from plancc.executor.backend.cpu_memory import allocate
from plancc.ir.buffers import activation_buffers
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows


def allocate_scratch(
    model: ModelShape, layers: tuple[int, int], runtime: Runtime, *, has_head: bool
) -> dict[str, torch.Tensor]:
    """Rows in the model's format, logits [slots, vocab_size], the rest flat float32."""
    slots = runtime.slots
    rows = step_rows(slots, runtime.prefill_chunk)
    sizes = activation_buffers(
        model, model.layers[slice(*layers)], rows, has_head=has_head, slots=slots
    )
    shapes = {name: ((size // 4,), torch.float32) for name, size in sizes.items()}
    dtype = getattr(torch, model.dtype)
    scratch: dict[str, Any] = shapes | {"hidden": ((rows, model.hidden_size), dtype)}
    if has_head:
        scratch["logits"] = ((slots, model.vocab_size), torch.float32)
    return allocate(scratch)
