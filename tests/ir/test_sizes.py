"""Bytes of KV, state, heads and buffers, with the numbers of the field cases."""

import pytest
from plancc_builders import GIB, MIB, build_layer, build_model, llama_8b

from plancc.ir.buffers import Capacity, Layout, scratch_buffers, workspace_bytes
from plancc.ir.errors import BadInput
from plancc.ir.layers import Block
from plancc.ir.manifest import ModelShape
from plancc.ir.sizes import (
    head_extra_bytes,
    hop_buffer_bytes,
    kv_bytes_per_token,
    kv_pool_rows,
    kv_rows_per_slot,
    layer_kv_bytes,
    layer_weight_bytes,
    step_rows,
)


def kv_bytes(model: ModelShape, context: int, *, slots: int = 1, chunk: int = 512) -> int:
    return sum(
        layer_kv_bytes(
            model, layer, context=context, slots=slots, prefill_chunk=chunk, kv_dtype=model.dtype
        )
        for layer in model.layers
    )


def test_c06_head_dim_is_a_field_not_hidden_over_heads() -> None:
    layer = build_layer(MIB, num_heads=32, num_kv_heads=8, head_dim=128)
    model = build_model([layer] * 36, hidden_size=2560)
    per_token = sum(kv_bytes_per_token(model, item, "bfloat16") for item in model.layers)
    assert per_token == 147456
    assert kv_bytes(model, 40960) == 5.625 * GIB


def test_c06_a_latent_cache_is_what_the_manifest_says() -> None:
    model = build_model([build_layer(MIB, kv=1152)] * 47)
    assert sum(kv_bytes_per_token(model, item, "bfloat16") for item in model.layers) == 54144
    assert kv_bytes(model, 8192) == 54144 * 8192


def test_c06_k_and_v_may_differ_in_width_and_by_layer() -> None:
    wide, narrow = (build_layer(MIB, k_dim=k, v_dim=v) for k, v in ((576, 512), (256, 256)))
    model = build_model([wide, narrow])
    sizes = [kv_bytes_per_token(model, layer, "bfloat16") for layer in model.layers]
    assert sizes == [2176, 1024]


def test_c03_a_window_layer_keeps_its_window_and_one_chunk() -> None:
    windowed = build_layer(MIB, window=1024, num_heads=8, num_kv_heads=8, head_dim=256)
    full = build_layer(MIB, num_heads=8, num_kv_heads=2, head_dim=512)
    model = build_model([windowed] * 25 + [full] * 5)
    assert kv_bytes(model, 131072) / GIB == pytest.approx(2.8, abs=0.05)
    assert kv_bytes(build_model([full] * 5), 131072) == 5 * 131072 * 4096


def test_a_window_longer_than_the_context_keeps_the_context() -> None:
    layer = build_layer(MIB, window=4096, kv=16)
    assert kv_rows_per_slot(layer, 1024, 512) == 1024


def test_slots_multiply_whole_pages_and_one_slot_costs_exactly_its_rows() -> None:
    assert kv_pool_rows(100, 1) == 100
    assert kv_pool_rows(100, 3) == 2 * 112 + 100
    assert kv_pool_rows(0, 3) == 0


def test_borrowed_kv_costs_nothing() -> None:
    layers = [build_layer(MIB, kv=64), build_layer(MIB, kv_from=0)]
    assert kv_bytes(build_model(layers), 128) == 128 * 64


def test_another_cache_dtype_needs_geometry() -> None:
    model = build_model([build_layer(MIB, kv=64)])
    with pytest.raises(BadInput, match="--kv-dtype float32: toy is bfloat16"):
        kv_bytes_per_token(model, model.layers[0], "float32")


def test_another_cache_dtype_scales_a_known_geometry() -> None:
    model = llama_8b()
    assert kv_bytes_per_token(model, model.layers[0], "float32") == 8192


def test_a_tied_head_costs_its_excess_beside_the_embedding_and_all_of_it_away() -> None:
    embed = Block(name="embed", weight_bytes=1000)
    head = Block(name="head", weight_bytes=1064, tied_to="embed", workspace_bytes=7)
    assert head_extra_bytes(head, embed) == 71
    assert head_extra_bytes(head, None) == 1071
    assert head_extra_bytes(head.model_copy(update={"tied_to": None}), embed) == 1071


def test_shares_of_a_layer_keep_the_mixer_whole() -> None:
    layer = llama_8b().layers[0]
    half = layer_weight_bytes(layer, (0, 8))
    assert half == layer.mixer.weight_bytes + 352321536 // 2
    assert layer_weight_bytes(layer) == layer.weight_bytes


def test_hop_buffers_hold_two_whole_steps() -> None:
    model = llama_8b()
    assert hop_buffer_bytes(model, step_rows(slots=4, prefill_chunk=512)) == 2 * 512 * 8192
    assert step_rows(slots=600, prefill_chunk=512) == 600


EIGHT = Capacity(slots=3, prefill_chunk=512, context=8192)


def test_a_block_is_float32_rows_of_64_and_sums_to_the_workspace() -> None:
    model = llama_8b()
    buffers = scratch_buffers(model, model.layers[:2], EIGHT, layout="block", has_head=True)
    assert buffers == {
        "hidden": 512 * 4096 * 2,
        "residual": 64 * 4096 * 4,
        "normed": 64 * 4096 * 4,
        "qkv": 64 * 6144 * 4,
        "attended": 64 * 4096 * 4,
        "activated": 64 * 14336 * 4,
        "rope": 64 * 128 * 4,
        "logits": 3 * 128256 * 4,
    }
    total = workspace_bytes(model, model.layers[:2], EIGHT, layout="block", has_head=True)
    assert total == sum(buffers.values())


def test_a_chunk_is_all_rows_in_the_models_format_and_what_steers_a_step() -> None:
    model = llama_8b()
    buffers = scratch_buffers(model, model.layers[:2], EIGHT, layout="chunk", has_head=True)
    assert buffers == {
        "incoming": 512 * 4096 * 2,
        "hidden": 512 * 4096 * 2,
        "gained": 512 * 4096 * 2,
        "squares": 512 * 128 * 4,
        "qkv": 512 * 6144 * 2,
        "attended": 512 * 4096 * 2,
        "activated": 512 * 14336 * 2,
        "waiting": 4 * 32 * 2 * 128 * 128 * 4,  # blocks, sums of each that wait for others
        "partials": 2 * 4 * 4096 * 4,
        "counters": 128 * 4,
        "control": (2 * 4 + 512) * 4,
        "sums": 4 * 32 * 32 * 128 * 4,  # rows, splits of 256 keys, heads, head_dim
        "peaks": 4 * 32 * 2 * 32 * 4,
        "angles": 512 * 2 * 64 * 4,
        "inv_freq": 64 * 8,
        "factors": 8,
        "pages.8192": 3 * 512 * 4,
        "logits": 4 * 128256 * 4,
        "drawn": 4 * 4 * 4,
        "last": 4096 * 2,
        "bests": 4 * 64 * 4,
        "places": 4 * 64 * 4,
    }
    total = workspace_bytes(model, model.layers[:2], EIGHT, layout="chunk", has_head=True)
    borders = 8 + 32 * 24 * 16 + 64 * 16  # of factors; of every layer's buffers; of others
    assert total == sum(buffers.values()) + borders + 2 * MIB


def test_sums_wait_for_as_many_programs_as_a_card_runs_whatever_the_rows() -> None:
    found = {}
    for chunk in (1, 600, 4096):
        capacity = Capacity(slots=1, prefill_chunk=chunk, context=8192)
        model = llama_8b()
        found[chunk] = scratch_buffers(model, model.layers, capacity, layout="chunk",
                                       has_head=False)["waiting"]  # fmt: skip
    each = 2 * 128 * 128 * 4
    assert found == {1: 32 * each, 600: 132 * each, 4096: 132 * each}


def test_every_window_of_a_model_has_its_pages_on_every_stage() -> None:
    kinds = [build_layer(MIB, window=window, num_heads=8, num_kv_heads=8, head_dim=256)
             for window in (1000, None, 100)]  # fmt: skip
    model = build_model(kinds, geometry={"norm_eps": 1e-5})
    capacity = Capacity(slots=2, prefill_chunk=512, context=1024)
    buffers = scratch_buffers(model, model.layers[:1], capacity, layout="chunk", has_head=False)
    tables = {name: size for name, size in buffers.items() if name.startswith("pages")}
    assert tables == {"pages.612": 2 * 39 * 4, "pages.1024": 2 * 64 * 4}


def test_scratch_of_a_chunk_grows_with_the_context_and_never_shrinks() -> None:
    layer = build_layer(MIB, window=700, num_heads=8, num_kv_heads=8, head_dim=256)
    model = build_model([layer], geometry={"norm_eps": 1e-5})
    sizes = [workspace_bytes(model, model.layers, Capacity(5, 64, context), layout="chunk",
                             has_head=True) for context in range(1, 1500)]  # fmt: skip
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


@pytest.mark.parametrize("layout", ["block", "chunk"])
def test_bytes_only_models_have_the_workspace_they_declare(layout: Layout) -> None:
    layers = (build_layer(MIB, workspace=300), build_layer(MIB, workspace=500))
    model = build_model(layers)
    assert workspace_bytes(model, layers, EIGHT, layout=layout, has_head=True) == 500
