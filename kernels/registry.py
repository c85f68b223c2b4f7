"""Every kernel family that a plan may name, and the compiled functions behind it.

The names are those of ir.kernel_spec.KERNELS (tested); a family's file states its numerics.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from plancc.kernels import reference
from plancc.kernels.attention_groups import append_groups, attend_groups
from plancc.kernels.attention_rows import append_rows, attend_rows
from plancc.kernels.compile import Function
from plancc.kernels.embed import enter_groups, enter_rows
from plancc.kernels.linear import linear_groups, linear_rows
from plancc.kernels.mlp import down_groups, down_rows, gate_up_groups, gate_up_rows
from plancc.kernels.norm import norm_groups, norm_rows


@dataclass(frozen=True)
class Family:
    """decode and prompt: the stages, in order. reference: the plain form of what they compute."""

    name: str
    decode: tuple[Function, ...]
    prompt: tuple[Function, ...]
    reference: Callable[..., Any] | None


REGISTRY: Mapping[str, Family] = MappingProxyType(
    {
        "embed": Family("gather/1", (enter_rows,), (enter_groups,), reference.gather),
        "norm": Family("rmsnorm/1", (norm_rows,), (norm_groups,), reference.rms_norm),
        "linear": Family("row_dot/1", (linear_rows,), (linear_groups,), reference.linear),
        "attention": Family(
            "paged_blocks/1",
            (append_rows, attend_rows),
            (append_groups, attend_groups),
            reference.attention,
        ),
        "mlp": Family(
            "tile_tree/1",
            (gate_up_rows, down_rows),
            (gate_up_groups, down_groups),
            reference.tile_roots,
        ),
        "head": Family("row_dot/1", (linear_rows,), (norm_rows, linear_rows), reference.linear),
        # One row of logits, on the host, at the driver: executor/sampling.py.
        "sample": Family("seeded_topk/1", (), (), None),
    }
)
