"""Models with experts that have a shape of their own: Mixtral, DeepSeek-V3 (MLA), gpt-oss."""

from plancc_example_parts import ITEM, attention, ends, moe, swiglu

from plancc.ir.layers import Layer, Mixer, MoeMlp
from plancc.ir.manifest import Geometry, ModelShape, Rope, RopeScaling

FP8_SCALES = 1 + 4 / 128**2  # a byte a weight, and an fp32 for each block of 128 x 128
MXFP4_BITS = 4.25  # four bits a weight, and eight for each 32
Described = tuple[tuple[str, ...], ModelShape]


def expert_models() -> dict[str, Described]:
    """File stem -> what to say first, and the model."""
    return {"mixtral-8x7b": mixtral(), "deepseek-v3": deepseek_v3(), "gpt-oss-120b": gpt_oss()}


def mixtral() -> Described:
    hidden, vocab = 4096, 32000
    layer = Layer(mixer=attention(hidden, 32, 8, 128), mlp=moe(hidden, 8, 2, 14336, shared=0))
    comment = ("Mixtral-8x7B, from its published config.json: two of eight experts a token.",)
    return comment, ModelShape(
        name="Mixtral-8x7B",
        family="mixtral",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=32768,
        geometry=Geometry(norm_eps=1e-5, rope={"default": Rope(theta=1e6)}),
        layers=(layer,) * 32,
        blocks=ends(hidden, vocab),
    )


def deepseek_v3() -> Described:
    """61 layers of latent attention, the first three with a dense MLP; weights in fp8."""
    hidden, vocab, heads = 7168, 129280, 128
    matrices = hidden * 1536 + 1536 * heads * 192  # queries, through a rank of 1536
    matrices += hidden * 576 + 512 * heads * 256 + heads * 128 * hidden  # latent, k and v, out
    norms = 1536 + 512 + 2 * hidden
    mixer = Mixer(
        kind="attention",
        weight_bytes=round(matrices * FP8_SCALES) + norms * ITEM,
        kv_bytes_per_token=(512 + 64) * ITEM,
    )
    dense = swiglu(hidden, 18432)
    dense = dense.model_copy(update={"weight_bytes": round(dense.weight_bytes / ITEM * FP8_SCALES),
                                     "group": 128})  # fmt: skip
    expert, router = 3 * hidden * 2048, hidden * 256 + 256
    experts = MoeMlp(
        kind="moe",
        num_experts=256,
        experts_per_token=8,
        expert_bytes=round(expert * FP8_SCALES),
        shared_bytes=round(expert * FP8_SCALES) + router * ITEM,
    )
    first = Layer(mixer=mixer, mlp=dense, flops_per_token=2.0 * (matrices + 3 * hidden * 18432))
    other = Layer(mixer=mixer, mlp=experts, flops_per_token=2.0 * (matrices + 9 * expert + router))
    comment = ("DeepSeek-V3, the main model, from its published config.json: fp8 weights with a",
               "scale for 128 x 128, both ends and the router in bf16. A token keeps 512 latent",
               "numbers and 64 of rotated key in bf16; bytes say so, there is no other geometry.",
               "Without the layer for multi-token prediction.")  # fmt: skip
    return comment, ModelShape(
        name="DeepSeek-V3",
        family="deepseek-v3",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=163840,
        layers=(first,) * 3 + (other,) * 58,
        blocks=ends(hidden, vocab),
    )


def gpt_oss() -> Described:
    """Every other layer has a window of 128; biases all over; experts in MXFP4."""
    hidden, vocab, wide, narrow = 2880, 201088, 64 * 64, 8 * 64
    elements = hidden * (wide + 2 * narrow) + wide + 2 * narrow + wide * hidden + hidden
    elements += 64 + 2 * hidden  # sinks, norms
    expert, biases = 3 * hidden * hidden, 3 * hidden
    router = hidden * 128 + 128
    experts = MoeMlp(
        kind="moe",
        num_experts=128,
        experts_per_token=4,
        expert_bytes=round(expert * MXFP4_BITS / 8) + biases * ITEM,
        shared_bytes=router * ITEM,
    )

    def layer(window: int | None) -> Layer:
        mixer = Mixer(kind="attention", weight_bytes=elements * ITEM, window=window, num_heads=64,
                      kv_bytes_per_token=2 * narrow * ITEM, num_kv_heads=8, head_dim=64,
                      q_bias=True, o_bias=True)  # fmt: skip
        return Layer(mixer=mixer, mlp=experts,
                     flops_per_token=2.0 * (elements + 4 * expert + router))  # fmt: skip

    yarn = RopeScaling(kind="yarn", factor=32, original_context=4096, beta_fast=32, beta_slow=1)
    comment = ("gpt-oss-120b, from its published config.json: experts in MXFP4 (4.25 bits), all",
               "else in bf16; sinks and biases are counted.")  # fmt: skip
    return comment, ModelShape(
        name="gpt-oss-120b",
        family="gpt-oss",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=131072,
        geometry=Geometry(norm_eps=1e-5, rope={"default": Rope(theta=150000, scaling=yarn)}),
        layers=(layer(128), layer(None)) * 18,
        blocks=ends(hidden, vocab),
    )
