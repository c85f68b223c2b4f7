"""Mixers, MLPs and ends of example models by their shapes; bfloat16 unless a file says else."""

from plancc.ir.layers import Block, DenseMlp, Layer, Mixer, MoeMlp

ITEM = 2  # bfloat16


def attention(
    hidden: int, heads: int, kv_heads: int, head_dim: int, *, head_norms: bool = False,
    gated: bool = False, norms: int = 2, rope: str | None = None, window: int | None = None
) -> Mixer:  # fmt: skip
    """`gated`: the query projection also gives a gate of its own width."""
    queries, keys = heads * head_dim, kv_heads * head_dim
    elements = hidden * (queries * (2 if gated else 1) + 2 * keys) + queries * hidden
    elements += norms * hidden + (2 * head_dim if head_norms else 0)
    return Mixer(
        kind="attention",
        weight_bytes=elements * ITEM,
        kv_bytes_per_token=2 * keys * ITEM,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rope=rope,
        window=window,
    )


def gdn(hidden: int, key_heads: int, value_heads: int, mlp: DenseMlp | MoeMlp) -> Layer:
    """Gated delta net with heads of 128: q, k, v, z, b, a, a convolution of 4, and out."""
    keys, values = key_heads * 128, value_heads * 128
    mixed = 2 * keys + values
    elements = hidden * (mixed + values + 2 * value_heads) + 4 * mixed + values * hidden
    elements += 2 * value_heads + 128 + 2 * hidden
    state = value_heads * 128 * 128 * 4 + mixed * 3 * ITEM
    mixer = Mixer(kind="gdn", weight_bytes=elements * ITEM)
    return Layer(mixer=mixer, mlp=mlp, state_bytes_per_slot=state)


def swiglu(hidden: int, inner: int) -> DenseMlp:
    return DenseMlp(kind="swiglu", weight_bytes=3 * hidden * inner * ITEM, intermediate_size=inner)


def moe(hidden: int, experts: int, chosen: int, inner: int, *, shared: int) -> MoeMlp:
    """Experts, their router, and a shared expert with its gate where there is one."""
    always = hidden * experts + (3 * hidden * shared + hidden if shared else 0)
    return MoeMlp(
        kind="moe",
        num_experts=experts,
        experts_per_token=chosen,
        expert_bytes=3 * hidden * inner * ITEM,
        shared_bytes=always * ITEM,
    )


def ends(hidden: int, vocab: int, *, tied: bool = False) -> tuple[Block, Block]:
    matrix = vocab * hidden * ITEM
    return (
        Block(name="embed", weight_bytes=matrix, place="first"),
        Block(name="head", weight_bytes=matrix + hidden * ITEM, place="last",
              tied_to="embed" if tied else None),
    )  # fmt: skip
