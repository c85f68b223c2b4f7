"""What the GPU kernels do not do: refused by name, before anything is allocated."""

from functools import partial

from plancc.executor.backend.layer_limits import attention_problems, check_layers, dense_problems
from plancc.ir.layers import DenseMlp, Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.plan import Runtime
from plancc.ir.tiles import Span

MAX_SLOTS, MAX_HEAD_DIM, MAX_QUERIES = 64, 256, 64


def check_runnable(model: ModelShape, runtime: Runtime, layers: Span, tiles: Span) -> None:
    """Raise BadInput naming every field of the rank's layers that no kernel here serves."""
    more = []
    if model.geometry is not None and model.geometry.mlp_bias:
        more.append("geometry.mlp_bias: expected false, found true")
    if runtime.slots > MAX_SLOTS:
        more.append(f"slots {runtime.slots}: expected at most {MAX_SLOTS}")
    check_layers(model, layers, "cuda", partial(_problems, tiles), tuple(more))


def _problems(tiles: Span, layer: Layer) -> list[str]:
    found = attention_problems(layer, most_queries=MAX_QUERIES, most_head_dim=MAX_HEAD_DIM)
    return found + (dense_problems(layer) or _share_problems(tiles, layer))


def _share_problems(tiles: Span, layer: Layer) -> list[str]:
    mlp = layer.mlp
    assert isinstance(mlp, DenseMlp)
    if mlp.kind != "swiglu" or mlp.fused is not None:
        return [f"mlp: expected swiglu with gate and up apart, found {mlp.kind}"]
    if tiles != (0, mlp.num_tiles):
        return [f"tiles {tiles}: a share of an MLP cannot run here yet, expected all "
                f"{mlp.num_tiles}"]  # fmt: skip
    return []
