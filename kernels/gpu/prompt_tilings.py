"""How prompt products of prompt_tree.py are cut into programs: one place for all choices."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor


@dataclass(frozen=True)
class PromptTiling:
    """block_m x block_n sums at a time, K in blocks of block_k.

    held: how many waiting sums stay in registers: none, 1 (a tile) or 2 (two tiles as well).
    copies: the tensor copy engine loads, where tiles are whole blocks. programs: how many on a
    multiprocessor. height: row blocks whose programs are neighbours: they share columns of w.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    held: int = 0
    copies: bool = True
    programs: int = 1
    height: int = 8


# Not measured yet: the larger block reads least, and its waiting sums cost 15 stores a block.
DOWN = PromptTiling(128, 256, 64, warps=8, stages=4)
LINEAR = PromptTiling(128, 256, 64, warps=8, stages=4)
GATE_UP = PromptTiling(128, 128, 64, warps=8, stages=4)
_EXACT = PromptTiling(32, 32, 32, warps=4, stages=2, copies=False)  # float32: no tensor cores


def resident_programs(tiling: PromptTiling, device: torch.device) -> int:
    """How many programs of a tiling run at a time; in the interpreter two, one after the other."""
    if device.type == "cpu":
        return 2
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count * tiling.programs


def scratch_size(tiling: PromptTiling, tiles: int, device: torch.device) -> int:
    """Float32 numbers that prompt_tree wants for waiting sums, whatever the rows."""
    return resident_programs(tiling, device) * levels(tiles) * tiling.block_m * tiling.block_n


def fitting(tiling: PromptTiling, x: torch.Tensor, span: int) -> PromptTiling:
    """The tiling for rows of x and tiles of at most `span` columns."""
    if x.element_size() == 4:
        tiling = replace(_EXACT, held=tiling.held)
    return replace(tiling, block_k=min(tiling.block_k, max(32, span & -span)))


def levels(tiles: int) -> int:
    return max(1, (tiles - 1).bit_length())


def sources(x: torch.Tensor, w: torch.Tensor, tiling: PromptTiling) -> tuple[Any, Any]:
    if not tiling.copies:
        return x, w
    return (TensorDescriptor.from_tensor(x, [tiling.block_m, tiling.block_k]),
            TensorDescriptor.from_tensor(w, [tiling.block_n, tiling.block_k]))  # fmt: skip


def constants(tiling: PromptTiling) -> dict[str, Any]:
    return {"BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n, "BLOCK_K": tiling.block_k,
            "COPIES": tiling.copies, "HEIGHT": tiling.height, "warps": tiling.warps,
            "stages": tiling.stages}  # fmt: skip
