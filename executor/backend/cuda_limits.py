"""What the GPU kernels do not do: refused by name, before anything is allocated."""

from functools import partial

from plancc.executor.backend.layer_limits import attention_problems, check_layers, dense_problems
from plancc.executor.group import Group
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tiles import MAX_TILES, Span
from plancc.kernels.gpu.roots import MAX_RANKS

MAX_SLOTS, MAX_HEAD_DIM, MAX_QUERIES = 64, 256, 64


def check_runnable(
    model: ModelShape, runtime: Runtime, layers: Span, tiles: Span, group: Group | None = None
) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves.

    tiles: what the rank has of each MLP; all of them where it has no group.
    """
    more = []
    if model.geometry is not None and model.geometry.mlp_bias:
        more.append("geometry.mlp_bias: expected false, found true")
    if runtime.slots > MAX_SLOTS:
        more.append(f"slots {runtime.slots}: expected at most {MAX_SLOTS}")
    more += _group_problems(group) if group else []
    whole = group.shares[-1] if group else tiles
    check_layers(model, layers, "cuda", partial(_problems, tiles, whole[1]), tuple(more))


def _problems(tiles: Span, whole: int, layer: Layer) -> list[str]:
    found = attention_problems(layer, most_queries=MAX_QUERIES, most_head_dim=MAX_HEAD_DIM)
    return found + (dense_problems(layer) or _share_problems(tiles, whole, layer))


def _share_problems(tiles: Span, whole: int, layer: Layer) -> list[str]:
    mlp = layer.mlp
    assert isinstance(mlp, DenseMlp)
    if mlp.kind != "swiglu" or mlp.fused is not None:
        return [f"mlp: expected swiglu with gate and up apart, found {mlp.kind}"]
    if mlp.num_tiles > MAX_TILES:
        return [f"mlp.tiles {mlp.num_tiles}: expected at most {MAX_TILES}"]
    if whole != mlp.num_tiles or not tiles[0] < tiles[1]:
        return [f"tiles {tiles} of {whole}: expected some of {mlp.num_tiles}"]
    return []


def _group_problems(group: Group) -> list[str]:
    """An owner would have to send two things for a decode row, the row times the gain and a float32
    factor that is applied after the product; a hop has room for one row of the model's format."""
    found = []
    if group.mixer == "owned":
        found.append("a TP group whose mixers one rank owns: expected replicated mixers; compile "
                     "with --tp off or for other devices")  # fmt: skip
    if len(group.shares) > MAX_RANKS:
        found.append(f"a TP group of {len(group.shares)} ranks: expected at most {MAX_RANKS}")
    return found
