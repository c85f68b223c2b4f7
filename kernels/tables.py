"""What a step is told, as records in memory: one of STEP, and one of LAYER for each layer.

Addresses are int64; counts are of elements; codes are of formats.FORMAT_CODES. An address of 0
means that there is no such thing.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from plancc.kernels.compile import Function, function, intrinsic

MAX_HEAD_DIM = 256
MAX_QUERIES_PER_KV_HEAD = 64
BLOCK_ROWS = 64  # prompt rows computed at a time


def _fields(names: str) -> list[tuple[str, type]]:
    return [(name, np.int64) for name in names.split()]


LAYER = np.dtype(
    _fields("input_norm qkv qkv_bias output output_bias mlp_norm gate_up down")
    + _fields("keys values pages pages_per_slot capacity window")
    + _fields("num_heads num_kv_heads head_dim qkv_width rope rotary_dim")
    + _fields("inner tile_bounds tile_merges num_tiles gate_up_bias down_bias")
)
"""pages: int64 [slots, pages_per_slot], a page id each. window: 0 for none. rope: which table.

capacity: tokens a slot keeps; position p lies in row p % capacity of them.
inner: columns of this rank's tiles; tile_bounds: int64 [num_tiles + 1], from 0 to inner;
tile_merges: int64 [num_tiles], how often to add the two last partials once a tile's is there.
"""

SEGMENT_FIELDS = (
    "before num_before each_layer num_each_layer after num_after first_layer end_layer "
    "num_rows num_groups num_logits embedding token_ids hidden_in hidden_out "
    "normed_out partials sum_bias"
).split()
"""Those of STEP's fields that differ from segment to segment, side by side: told at once."""

STEP = np.dtype(
    _fields("dot row_dots tile_dots widen narrow round_to")
    + _fields("add_rows exp_minus product block_sums attend_block")
    + _fields(" ".join(SEGMENT_FIELDS))
    + _fields("hidden_size code kv_code page_tokens positions slots")
    + _fields("roots num_roots root_merges final_norm head vocab_size logits")
    + _fields("residual normed qkv attended activated")
    + _fields("inv_freq num_ropes rope_width rope_table")
    + [("norm_eps", np.float32), ("padding", np.float32)]
)
"""First the addresses of stages.SHARED, then three lists of stages as stages.stage_array
makes them. `before` and `after` run once, `each_layer` for layers [first, end).

hidden_in, hidden_out: rows in the model's format; embedding: 0 where rows come in instead.
partials: where the roots of this rank's tiles go, float32 [rows, roots, hidden]; 0 where it holds
all tiles and adds them itself. roots: int64 [num_roots, 2], for each root of all ranks, in tile
order, the address of its first row and the bytes from row to row; root_merges: as tile_merges, for
these; sum_bias: what is added once to their sum.
num_groups: those that the rows fill, in a prompt step. positions: int64, one a row (decode) or the
first row's (prompt); slots likewise.
residual, normed, qkv, attended, activated: scratch, float32 rows (decode) or groups (prompt).
inv_freq: float64 [num_ropes, rope_width / 2], then num_ropes attention factors; rope_table: what
`rotary` makes of it for the step's positions.
"""


def _as_record(kind: Any) -> Callable[..., Any]:
    record = numba.from_dtype(kind)

    def typing(_context: Any, address: Any) -> Any:
        def generate(context: Any, b: ir.IRBuilder, _s: Any, args: list[ir.Value]) -> ir.Value:
            return b.inttoptr(args[0], context.get_value_type(record))

        return record(types.int64), generate

    return intrinsic(typing)


as_step, as_layer = _as_record(STEP), _as_record(LAYER)


def stage(source: Callable[..., None]) -> Function:
    """A kernel that a team runs: (part, parts, step address, layer address, variant).

    Its arguments are numbers; `as_step` and `as_layer` make records of the two addresses.
    """
    return function("void(int64, int64, int64, int64, int64)")(source)
