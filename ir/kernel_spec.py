"""Kernels that a plan may call, and what each reads of a layer in a step.

A family's name is the promise of its numerics (design.md section 9), not of a device: backends
implement it. The executor's registry must equal KERNELS (tested).
"""

from plancc.ir.layers import DenseMlp, Layer, MoeMlp

KERNELS: dict[str, str] = {
    "embed": "gather/1",
    "norm": "rmsnorm/1",
    "linear": "row_dot/1",
    "attention": "paged_blocks/1",
    "mlp": "tile_tree/1",
    "head": "row_dot/1",
    "sample": "seeded_topk/1",
}


def mixer_reads(layer: Layer) -> tuple[float, ...]:
    """Weight bytes that each kernel of the mixer streams: qkv and o, or one sum where unknown."""
    mixer = layer.mixer
    if not (mixer.num_heads and mixer.head_dim and mixer.kv_width()):
        return (float(mixer.weight_bytes),)
    queries, values = mixer.num_heads * mixer.head_dim, mixer.kv_width() or 0
    first = mixer.weight_bytes * (queries + values) / (2 * queries + values)
    return (first, mixer.weight_bytes - first)


def mlp_reads(layer: Layer, rows: int, share: tuple[int, int] | None = None) -> tuple[float, ...]:
    """Weight bytes that each kernel of the MLP streams for a step of so many rows.

    A dense MLP reads its share: gate and up together, then down. Experts: of E experts with k a
    token, n rows touch E (1 - (1 - k/E)^n) in the mean; shared weights are read always.
    """
    mlp = layer.mlp
    if mlp is None:
        return ()
    if isinstance(mlp, MoeMlp):
        miss = (1 - mlp.experts_per_token / mlp.num_experts) ** rows
        touched = mlp.num_experts * (1 - miss) * mlp.expert_bytes
        return (2 * touched / 3, touched / 3 + mlp.shared_bytes)
    whole = float(mlp.weight_bytes if share is None else mlp.share_bytes(*share))
    first = whole * (1 / 2 if mlp.kind == "mlp" else 2 / 3)
    return (first, whole - first + mlp.uncut_bytes)


def mixer_launches(layer: Layer) -> int:
    """Kernels of the mixer: norm+qkv, rope+append+attend, o+add."""
    return 3


def mlp_launches(layer: Layer) -> int:
    """Kernels of the MLP: norm+gate+up+activation, down+tree+add."""
    return 0 if layer.mlp is None else 2


EMBED_LAUNCHES = 1
HEAD_LAUNCHES = 2  # norm + head, sample


def layer_flops_per_row(layer: Layer, itemsize: int) -> float:
    """Two per weight that a row meets; what the manifest says wins."""
    if layer.flops_per_token is not None:
        return layer.flops_per_token
    mlp = layer.mlp
    if isinstance(mlp, MoeMlp):
        met = mlp.experts_per_token * mlp.expert_bytes + mlp.shared_bytes
    else:
        met = mlp.weight_bytes if isinstance(mlp, DenseMlp) else 0
    return 2.0 * (layer.mixer.weight_bytes + met) / itemsize
