"""The manifests in plans/models/, computed from published configurations.

    python tests/support/plancc_example_models.py     writes them all anew

Bytes follow from the shapes; the test compares their sums with the parameter counts that the
models' publishers state. No weight index: they compile anywhere and run once `plancc manifest`
has seen the weights.
"""

from pathlib import Path
from typing import Any

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.manifest_yaml import manifest_text
from plancc.ir.layers import Block, DenseMlp, Layer, Mixer, MoeMlp
from plancc.ir.manifest import Geometry, ModelManifest, ModelShape, Rope, RopeScaling

MODELS = Path(__file__).resolve().parents[2] / "plans" / "models"
ITEM = 2  # bfloat16

LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip


def main() -> None:
    MODELS.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (MODELS / f"{name}.yaml").write_text(text, encoding="utf-8")


def texts() -> dict[str, str]:
    """File stem -> the whole text of the manifest."""
    return {name: "".join(f"# {line}\n" for line in comment) + manifest_text(manifest(shape))
            for name, (comment, shape) in sorted(models().items())}  # fmt: skip


def manifest(shape: ModelShape) -> ModelManifest:
    return ModelManifest(**{key: getattr(shape, key) for key in ModelShape.model_fields})


def models() -> dict[str, tuple[tuple[str, ...], ModelShape]]:
    """File stem -> what to say first, and the model."""
    llama3 = {"vocab_size": 128256, "rope_theta": 5e5, "rope_scaling": LLAMA3_ROPE,
              "max_position_embeddings": 131072}  # fmt: skip
    big = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
           "num_attention_heads": 64, "num_key_value_heads": 8} | llama3  # fmt: skip
    return {
        "llama-3.1-8b": llama("Llama-3.1-8B", hidden_size=4096, intermediate_size=14336,
                              num_hidden_layers=32, num_attention_heads=32,
                              num_key_value_heads=8, **llama3),
        "llama-3.1-70b": llama("Llama-3.1-70B", **big),
        "llama-3.3-70b": llama("Llama-3.3-70B", **big),
        "llama-3.1-405b": llama("Llama-3.1-405B", hidden_size=16384, intermediate_size=53248,
                                num_hidden_layers=126, num_attention_heads=128,
                                num_key_value_heads=8, **llama3),
        "smollm2-135m": llama("SmolLM2-135M", hidden_size=576, intermediate_size=1536,
                              num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                              vocab_size=49152, rope_theta=1e5, max_position_embeddings=8192,
                              tie_word_embeddings=True),
        "mistral-7b": llama("Mistral-7B-v0.1", architectures=["MistralForCausalLM"],
                            hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                            num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
                            rope_theta=1e4, max_position_embeddings=32768, sliding_window=4096),
        "qwen3-8b": qwen3("Qwen3-8B", layers=36, hidden=4096, heads=32, kv_heads=8, inner=12288),
        "qwen3-32b": qwen3("Qwen3-32B", layers=64, hidden=5120, heads=64, kv_heads=8,
                           inner=25600),
        "qwen3-30b-a3b": qwen3("Qwen3-30B-A3B", layers=48, hidden=2048, heads=32, kv_heads=4,
                               experts=(128, 8, 768)),
        "qwen3.6-27b": hybrid("Qwen3.6-27B", family="qwen3.5", layers=64, hidden=5120, heads=24,
                              kv_heads=4, gdn_heads=(16, 48), inner=17408, vocab=248320),
        "qwen3.6-35b-a3b": hybrid("Qwen3.6-35B-A3B", family="qwen3.5-moe", layers=40, hidden=2048,
                                  heads=16, kv_heads=2, gdn_heads=(16, 32),
                                  experts=(256, 8, 512), vocab=248320),
        "qwen3-next-80b-a3b": hybrid("Qwen3-Next-80B-A3B", family="qwen3-next", layers=48,
                                     hidden=2048, heads=16, kv_heads=2, gdn_heads=(16, 32),
                                     experts=(512, 10, 512), vocab=151936),
        "gemma-3-27b": gemma3_27b(),
    }  # fmt: skip


def llama(name: str, **config: Any) -> tuple[tuple[str, ...], ModelShape]:
    """By the frontend that reads checkpoints."""
    fields = {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
    shape = read_architecture(fields | config, where=name, name=name).shape
    return (f"{name}, from its published config.json.",), shape


def qwen3(
    name: str, *, layers: int, hidden: int, heads: int, kv_heads: int, inner: int = 0,
    experts: tuple[int, int, int] | None = None
) -> tuple[tuple[str, ...], ModelShape]:  # fmt: skip
    mixer = attention(hidden, heads, kv_heads, 128, head_norms=True)
    mlp = moe(hidden, *experts, shared=0) if experts else swiglu(hidden, inner)
    comment = (f"{name}, from its published config.json; q and k are normed by head.",)
    return comment, ModelShape(
        name=name,
        family="qwen3-moe" if experts else "qwen3",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=151936,
        max_context=40960,
        geometry=Geometry(norm_eps=1e-6, rope={"default": Rope(theta=1e6)}),
        layers=(Layer(mixer=mixer, mlp=mlp),) * layers,
        blocks=ends(hidden, 151936),
    )


def hybrid(
    name: str, *, family: str, layers: int, hidden: int, heads: int, kv_heads: int,
    gdn_heads: tuple[int, int], vocab: int, inner: int = 0,
    experts: tuple[int, int, int] | None = None
) -> tuple[tuple[str, ...], ModelShape]:  # fmt: skip
    """Three gated-delta-net layers, then one of attention with a gated query, all along."""
    mlp = moe(hidden, *experts, shared=experts[2]) if experts else swiglu(hidden, inner)
    full = Layer(mixer=attention(hidden, heads, kv_heads, 256, head_norms=True, gated=True),
                 mlp=mlp)  # fmt: skip
    linear = gdn(hidden, *gdn_heads, mlp)
    comment = (f"{name}, the language model: from its published config.json.",
               "State: fp32, with three columns of bf16 for the convolution. Without the layer",
               "for multi-token prediction and without a vision tower.")  # fmt: skip
    return comment, ModelShape(
        name=name,
        family=family,
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=262144,
        geometry=Geometry(norm_eps=1e-6, rope={"default": Rope(theta=1e7, rotary_dim=64)}),
        layers=(linear, linear, linear, full) * (layers // 4),
        blocks=ends(hidden, vocab),
    )


def gemma3_27b() -> tuple[tuple[str, ...], ModelShape]:
    """Five windowed layers, then a full one; four norms a layer; SigLIP as a block."""
    hidden, vocab = 5376, 262208
    mixers = {
        rope: attention(hidden, 32, 16, 128, head_norms=True, norms=4, rope=rope, window=window)
        for rope, window in (("window", 1024), ("full", None))
    }
    mlp = DenseMlp(kind="geglu", weight_bytes=3 * hidden * 21504 * ITEM, intermediate_size=21504)
    layers = [Layer(mixer=mixers["full" if index % 6 == 5 else "window"], mlp=mlp)
              for index in range(62)]  # fmt: skip
    ropes = {"full": Rope(theta=1e6, scaling=RopeScaling(kind="linear", factor=8)),
             "window": Rope(theta=1e4)}  # fmt: skip
    vision = Block(name="vision", weight_bytes=423_060_336 * ITEM, place="any")
    comment = ("Gemma-3-27B, from its published config.json. The vision block is SigLIP (27 layers",
               "of 1152, 896 pixels) and the projection of 1152 x 5376; `--without vision` leaves",
               "it out.")  # fmt: skip
    return comment, ModelShape(
        name="Gemma-3-27B",
        family="gemma3",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=131072,
        geometry=Geometry(norm_eps=1e-6, rope=ropes),
        layers=tuple(layers),
        blocks=(*ends(hidden, vocab, tied=True), vision),
    )


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


if __name__ == "__main__":
    main()
