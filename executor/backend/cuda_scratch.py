"""Buffers of a rank's steps: those of ir.buffers, as tensors on the device.

Prompt rows pass through all layers a chunk at a time, so rows are as many as a step carries; decode
uses the first ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from plancc.executor.backend.cuda_memory import Arena, Shape
from plancc.executor.rope import rope_table
from plancc.ir.buffers import (
    DRAWS,
    SAMPLE_PIECES,
    SQUARES_COLUMNS,
    Capacity,
    page_table,
    rope_width,
    scratch_buffers,
)
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.kernels.gpu.tilings import power_of_two


@dataclass(frozen=True)
class Scratch:
    """Tensors by the names of ir.buffers; `inv_freq` and `factors` in the order of rope_names."""

    tensors: Mapping[str, torch.Tensor]
    rope_names: tuple[str, ...]

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    @property
    def inv_freq(self) -> torch.Tensor:
        """float64 [ropes, half]"""
        return self.tensors["inv_freq"]

    @property
    def factors(self) -> torch.Tensor:
        """float64 [ropes]"""
        return self.tensors["factors"]

    @property
    def waiting(self) -> torch.Tensor | None:
        """Where sums of a prompt's down projection wait; None where none do so in memory."""
        return self.tensors.get("waiting")

    def page_table(self, capacity_rows: int) -> torch.Tensor:
        """int32 [slots, pages of a slot] of layers whose slots keep so many rows."""
        return self.tensors[page_table(capacity_rows)]


def scratch_sizes(
    model: ModelShape, runtime: Runtime, layers: tuple[Layer, ...], *, has_head: bool
) -> dict[str, int]:
    """Bytes of each buffer."""
    capacity = Capacity(runtime.slots, runtime.prefill_chunk, runtime.context)
    return scratch_buffers(model, layers, capacity, layout="chunk", has_head=has_head)


def allocate_scratch(
    model: ModelShape, runtime: Runtime, layers: tuple[Layer, ...], *, has_head: bool,
    arena: Arena,
) -> Scratch:  # fmt: skip
    """Everything a step of the rank writes but KV, and the rotary frequencies it begins with."""
    assert model.geometry is not None
    sizes = scratch_sizes(model, runtime, layers, has_head=has_head)
    forms = {name: _form(name, model, runtime.slots) for name in sizes}
    tensors = arena.cut({name: ((size // forms[name][1].itemsize,), forms[name][1])
                         for name, size in sizes.items()})  # fmt: skip
    tensors = {name: tensor.view(forms[name][0]) for name, tensor in tensors.items()}
    names = tuple(sorted(model.geometry.rope))
    _fill_rotary(tensors, names, model, runtime)
    return Scratch(tensors, names)


def _form(name: str, model: ModelShape, slots: int) -> tuple[Shape, torch.dtype]:
    """A buffer's shape, all but its length, and its type; what layers cut differently is flat."""
    assert model.geometry is not None
    dtype: torch.dtype = getattr(torch, model.dtype)
    half = max(2, rope_width(model.layers)) // 2
    match name:
        case "incoming" | "hidden" | "gained" | "last":
            return (-1, model.hidden_size), dtype
        case "qkv" | "attended" | "activated":
            return (-1,), dtype
        case "squares":
            return (-1, -(-model.hidden_size // SQUARES_COLUMNS)), torch.float32
        case "angles":
            return (max(1, len(model.geometry.rope)), -1, 2, half), torch.float32
        case "inv_freq":
            return (-1, half), torch.float64
        case "factors":
            return (-1,), torch.float64
        case "logits":
            return (power_of_two(slots), -1), torch.float32
        case "bests":
            return (-1, SAMPLE_PIECES), torch.float32
        case "places":
            return (-1, SAMPLE_PIECES), torch.int32
        case "partials" | "waiting" | "sums" | "peaks":
            return (-1,), torch.float32
        case "drawn":
            return (DRAWS, -1), torch.int32
        case "counters" | "control":
            return (-1,), torch.int32
    assert name.startswith("pages."), name
    return (slots, -1), torch.int32


def _fill_rotary(
    tensors: Mapping[str, torch.Tensor], names: tuple[str, ...], model: ModelShape,
    runtime: Runtime,
) -> None:  # fmt: skip
    assert model.geometry is not None
    inv_freq = torch.zeros(tensors["inv_freq"].shape, dtype=torch.float64)
    factors = torch.ones(tensors["factors"].shape, dtype=torch.float64)
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
    tensors["inv_freq"].copy_(inv_freq)
    tensors["factors"].copy_(factors)
