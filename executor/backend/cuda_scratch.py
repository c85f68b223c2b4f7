"""Buffers of a rank's steps, and the rotary frequencies they begin with.

Prompt rows pass through all layers a chunk at a time, so rows are as many as a step carries; decode
uses the first ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_memory import Shape, allocate, total_bytes
from plancc.executor.rope import rope_table
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.kernels.gpu.attention import max_splits
from plancc.kernels.gpu.norm import CHUNK
from plancc.kernels.gpu.sample import PIECES
from plancc.kernels.gpu.tilings import power_of_two


@dataclass(frozen=True)
class Scratch:
    """Tensors by name, as _shapes lists them, and rotary frequencies of every setting."""

    tensors: Mapping[str, torch.Tensor]
    inv_freq: torch.Tensor  # float64 [ropes, half]
    factors: torch.Tensor  # float64 [ropes]
    rope_names: tuple[str, ...]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    @property
    def allocated_bytes(self) -> int:
        return total_bytes(self.tensors.values())


def allocate_scratch(
    model: ModelShape, runtime: Runtime, layers: tuple[Layer, ...], *, has_head: bool,
    device: torch.device,
) -> Scratch:  # fmt: skip
    """Everything a step of the rank writes but KV."""
    assert model.geometry is not None
    names = tuple(sorted(model.geometry.rope))
    half = max([2, *((layer.mixer.head_dim or 0) for layer in model.layers)]) // 2
    inv_freq = torch.zeros(max(1, len(names)), half, dtype=torch.float64)
    factors = torch.ones(max(1, len(names)), dtype=torch.float64)
    for at, name in enumerate(names):
        rope = model.geometry.rope[name]
        users = [layer for layer in model.layers if (layer.mixer.rope or names[0]) == name]
        width = rope.rotary_dim or next((layer.mixer.head_dim for layer in users), None)
        if width is None:
            continue
        made = rope_table(rope, rotary_dim=width, max_context=model.max_context,
                          context=runtime.context)  # fmt: skip
        inv_freq[at, : width // 2] = torch.from_numpy(made.inv_freq)
        factors[at] = made.attention_factor
    shapes = _shapes(model, runtime, layers, has_head, (len(inv_freq), half))
    return Scratch(allocate(shapes, device), inv_freq.to(device), factors.to(device), names)


def _shapes(
    model: ModelShape, runtime: Runtime, layers: tuple[Layer, ...], has_head: bool,
    ropes: tuple[int, int],
) -> dict[str, tuple[Shape, torch.dtype]]:  # fmt: skip
    rows, hidden = step_rows(runtime.slots, runtime.prefill_chunk), model.hidden_size
    slots, dtype = power_of_two(runtime.slots), getattr(torch, model.dtype)
    rows = max(rows, slots)
    mixers = [layer.mixer for layer in layers]
    heads = max((m.num_heads or 0) * (m.head_dim or 0) for m in mixers)
    qkv = max((m.num_heads or 0) * (m.head_dim or 0) + (m.kv_width() or 0) for m in mixers)
    inner = max(getattr(layer.mlp, "intermediate_size", 0) or 0 for layer in layers)
    size = dtype.itemsize
    splits = max(max_splits(runtime.context, m.head_dim or 1, size) for m in mixers)
    squares = -(-hidden // CHUNK)
    shapes: dict[str, tuple[Shape, torch.dtype]] = {
        "incoming": ((rows, hidden), dtype),
        "hidden": ((rows, hidden), dtype),
        "gained": ((rows, hidden), dtype),
        "squares": ((rows, squares), torch.float32),
        "qkv": ((rows * qkv,), dtype),
        "attended": ((rows * heads,), dtype),
        "activated": ((rows * inner,), dtype),
        "angles": ((ropes[0], rows, 2, ropes[1]), torch.float32),
        "partials": ((2 * slots * hidden,), torch.float32),
        "counters": ((max(squares, slots),), torch.int32),
        "sums": ((slots * splits * heads,), torch.float32),
        "peaks": ((slots * splits * 2 * max(m.num_heads or 0 for m in mixers),), torch.float32),
    }
    if has_head:
        shapes |= {
            "logits": ((slots, model.vocab_size or 0), torch.float32),
            "last": ((1, hidden), dtype),
            "bests": ((slots, PIECES), torch.float32),
            "places": ((slots, PIECES), torch.int32),
        }
    return shapes
