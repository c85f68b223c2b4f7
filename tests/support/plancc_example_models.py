"""The manifests in plans/models/, computed from published configurations.

    python tests/support/plancc_example_models.py     writes them all anew

Bytes follow from the shapes; the test compares their sums with the parameter counts that the
models' publishers state. No weight index: they compile anywhere and run once `plancc manifest`
has seen the weights.
"""

from pathlib import Path
from typing import Any

from plancc_example_experts import expert_models
from plancc_example_parts import ITEM, attention, ends, gdn, moe, swiglu

from plancc.compiler.frontends.architectures import read_architecture
from plancc.compiler.manifest_yaml import manifest_text
from plancc.ir.layers import Block, DenseMlp, Layer
from plancc.ir.manifest import Geometry, ModelManifest, ModelShape, Rope, RopeScaling

MODELS = Path(__file__).resolve().parents[2] / "plans" / "models"
SIGLIP = Block(name="vision", weight_bytes=423_060_336 * ITEM, place="any")

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
        "llama-2-13b": llama("Llama-2-13B", torch_dtype="float16", hidden_size=5120,
                             intermediate_size=13824, num_hidden_layers=40,
                             num_attention_heads=40, num_key_value_heads=40, vocab_size=32000,
                             rope_theta=1e4, max_position_embeddings=4096),
        "smollm2-135m": llama("SmolLM2-135M", hidden_size=576, intermediate_size=1536,
                              num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                              vocab_size=49152, rope_theta=1e5, max_position_embeddings=8192,
                              tie_word_embeddings=True),
        "mistral-7b": llama("Mistral-7B-v0.1", architectures=["MistralForCausalLM"],
                            hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                            num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
                            rope_theta=1e4, max_position_embeddings=32768, sliding_window=4096),
        "mistral-small-24b": llama("Mistral-Small-24B", architectures=["MistralForCausalLM"],
                                   hidden_size=5120, intermediate_size=32768,
                                   num_hidden_layers=40, num_attention_heads=32,
                                   num_key_value_heads=8, head_dim=128, vocab_size=131072,
                                   rope_theta=1e8, max_position_embeddings=32768),
        "llama-3.2-3b": llama("Llama-3.2-3B", hidden_size=3072, intermediate_size=8192,
                              num_hidden_layers=28, num_attention_heads=24,
                              num_key_value_heads=8, tie_word_embeddings=True,
                              **(llama3 | {"rope_scaling": LLAMA3_ROPE | {"factor": 32.0}})),
        "qwen3-4b": qwen3("Qwen3-4B", layers=36, hidden=2560, heads=32, kv_heads=8, inner=9728,
                          tied=True),
        "qwen3-14b": qwen3("Qwen3-14B", layers=40, hidden=5120, heads=40, kv_heads=8,
                           inner=17408),
        "qwen3-235b-a22b": qwen3("Qwen3-235B-A22B", layers=94, hidden=4096, heads=64, kv_heads=4,
                                 experts=(128, 8, 1536)),
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
        "gemma-3-27b": gemma3("Gemma-3-27B", layers=62, hidden=5376, heads=32, kv_heads=16,
                              head_dim=128, inner=21504, vocab=262208, window=1024,
                              max_context=131072, factor=8, blocks=(SIGLIP,)),
        "gemma-3-270m": gemma3("Gemma-3-270M", layers=18, hidden=640, heads=4, kv_heads=1,
                               head_dim=256, inner=2048, vocab=262144, window=512,
                               max_context=32768),
        **expert_models(),
    }  # fmt: skip


def llama(name: str, **config: Any) -> tuple[tuple[str, ...], ModelShape]:
    """By the frontend that reads checkpoints."""
    fields = {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
    shape = read_architecture(fields | config, where=name, name=name).shape
    return (f"{name}, from its published config.json.",), shape


def qwen3(
    name: str, *, layers: int, hidden: int, heads: int, kv_heads: int, inner: int = 0,
    experts: tuple[int, int, int] | None = None, tied: bool = False
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
        blocks=ends(hidden, 151936, tied=tied),
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


def gemma3(
    name: str, *, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int,
    vocab: int, window: int, max_context: int, factor: float | None = None,
    blocks: tuple[Block, ...] = ()
) -> tuple[tuple[str, ...], ModelShape]:  # fmt: skip
    """Five windowed layers, then a full one; four norms a layer; one matrix at both ends."""
    mixers = {
        rope: attention(hidden, heads, kv_heads, head_dim, head_norms=True, norms=4, rope=rope,
                        window=size)
        for rope, size in (("window", window), ("full", None))
    }  # fmt: skip
    mlp = DenseMlp(kind="geglu", weight_bytes=3 * hidden * inner * ITEM, intermediate_size=inner)
    scaling = RopeScaling(kind="linear", factor=factor) if factor else None
    ropes = {"full": Rope(theta=1e6, scaling=scaling), "window": Rope(theta=1e4)}
    comment = [f"{name}, from its published config.json: five layers in six have a window."]
    if blocks:
        comment += ["The vision block is SigLIP (27 layers of 1152, 896 pixels) and the projection",
                    "of 1152 x 5376; `--without vision` leaves it out."]  # fmt: skip
    return tuple(comment), ModelShape(
        name=name,
        family="gemma3",
        dtype="bfloat16",
        hidden_size=hidden,
        vocab_size=vocab,
        max_context=max_context,
        geometry=Geometry(norm_eps=1e-6, rope=ropes),
        layers=tuple(
            Layer(mixer=mixers["full" if index % 6 == 5 else "window"], mlp=mlp)
            for index in range(layers)
        ),
        blocks=(*ends(hidden, vocab, tied=True), *blocks),
    )


if __name__ == "__main__":
    main()
