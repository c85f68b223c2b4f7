"""What the GPU kernels do not do: refused by name, before anything is allocated.

Asked before a run begins, too, where nothing may import torch: so what they say of themselves is
said here again, and a test compares it.
"""

from functools import partial
from typing import TYPE_CHECKING

from plancc.executor.backend.layer_limits import attention_problems, check_layers, dense_problems
from plancc.executor.group import Group
from plancc.ir.buffers import SQUARES_COLUMNS, power_of_two
from plancc.ir.dtype import ITEMSIZE
from plancc.ir.errors import BadInput
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.sizes import step_rows
from plancc.ir.tiles import MAX_TILES, Span

if TYPE_CHECKING:
    import torch

LEAST_CAPABILITY = (8, 0)
"""Of cards that multiply bfloat16 and load past their registers; all of them multiply float16."""
MAX_SLOTS, MAX_HEAD_DIM, MAX_QUERIES = 64, 256, 64
MAX_RANKS = 8
_FP32 = 4


def check_card(device: "torch.device") -> None:
    """Raise BadInput for a card that the kernels are not made for."""
    import torch

    from plancc.kernels.gpu.card import card_of

    found = card_of(device).capability
    if found < LEAST_CAPABILITY:
        raise BadInput(f"{device} is {torch.cuda.get_device_name(device)}: expected compute "
                       f"capability {_dotted(LEAST_CAPABILITY)} or more, as cards from 2020 on "
                       f"have, found {_dotted(found)}; leave it out of the topology")  # fmt: skip


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def check_runnable(
    model: ModelShape, runtime: Runtime, layers: Span, tiles: Span, group: Group | None = None
) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves.

    tiles: what the rank has of each MLP; all of them where it has no group.
    """
    more = []
    if model.geometry is not None and model.geometry.mlp_bias:
        more.append("geometry.mlp_bias: expected false (no kernel adds biases of an MLP; those of "
                    "cpu devices do), found true")  # fmt: skip
    if runtime.slots > MAX_SLOTS:
        more.append(f"slots {runtime.slots}: expected at most {MAX_SLOTS}")
    more += _group_problems(group, model, runtime) if group else []
    whole = group.shares[-1] if group else tiles
    check_layers(model, layers, "cuda", partial(_problems, tiles, whole[1]), tuple(more))


def _problems(tiles: Span, whole: int, layer: Layer) -> list[str]:
    found = attention_problems(layer, most_queries=MAX_QUERIES, most_head_dim=MAX_HEAD_DIM)
    return found + (dense_problems(layer) or _share_problems(tiles, whole, layer))


def _share_problems(tiles: Span, whole: int, layer: Layer) -> list[str]:
    mlp = layer.mlp
    assert isinstance(mlp, DenseMlp)
    if mlp.kind != "swiglu":
        return [f"mlp: expected swiglu, found {mlp.kind}"]
    if mlp.num_tiles > MAX_TILES:
        return [f"mlp.tiles {mlp.num_tiles}: expected at most {MAX_TILES}"]
    if whole != mlp.num_tiles or not tiles[0] < tiles[1]:
        return [f"tiles {tiles} of {whole}: expected some of {mlp.num_tiles}"]
    return []


def _group_problems(group: Group, model: ModelShape, runtime: Runtime) -> list[str]:
    found = []
    if len(group.shares) > MAX_RANKS:
        found.append(f"a TP group of {len(group.shares)} ranks: expected at most {MAX_RANKS}")
    if group.mixer == "owned":
        found += _owner_problems(model, runtime)
    return found


def _owner_problems(model: ModelShape, runtime: Runtime) -> list[str]:
    """What an owner sends for decode rows is more than those rows: see cuda_exchange."""
    rows, itemsize, found = power_of_two(runtime.slots), ITEMSIZE[model.dtype], []
    needed = rows + _squares_rows(rows, model.hidden_size, itemsize)
    if needed > step_rows(runtime.slots, runtime.prefill_chunk):
        found.append(f"prefill_chunk {runtime.prefill_chunk}: a TP group whose mixers one rank "
                     f"owns expects at least {needed} with {runtime.slots} slots")  # fmt: skip
    if model.hidden_size * itemsize % 4:
        found.append(f"hidden_size {model.hidden_size}: a TP group whose mixers one rank owns "
                     f"expects an even one")  # fmt: skip
    return found


def _squares_rows(num_rows: int, hidden_size: int, itemsize: int) -> int:
    """As cuda_exchange.squares_rows."""
    sums = num_rows * -(-hidden_size // SQUARES_COLUMNS)
    return -(-sums * _FP32 // (hidden_size * itemsize))
